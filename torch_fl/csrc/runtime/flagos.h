/* A small C interface to the vendor's device runtime (libcudart, libgalaxyhip, libmcruntime, ...), found at run time.
 *
 * The runtimes share their functions' shapes and differ in a prefix: cudaMemGetInfo, hipMemGetInfo, mcMemGetInfo.
 * Nothing here is linked against a runtime, and nothing here knows torch.
 *
 * Every function returns a status; flagosErrorText explains a status, flagosLastErrorText the calling thread's last
 * failure with the function that failed and the vendor's own words. All functions but flagosOpen may be called from any
 * thread.
 */
#ifndef FLAGOS_FLAGOS_H_
#define FLAGOS_FLAGOS_H_

#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define FLAGOS_EXPORT __attribute__((visibility("default")))

typedef enum flagosStatus {
  FLAGOS_SUCCESS = 0,
  FLAGOS_NOT_READY = 1,        /* only from flagosStreamQuery: work is still running */
  FLAGOS_NOT_OPEN = 2,         /* flagosOpen has not succeeded yet */
  FLAGOS_LIBRARY_MISSING = 3,  /* the runtime is neither loaded nor loadable */
  FLAGOS_FUNCTION_MISSING = 4, /* the runtime lacks the function */
  FLAGOS_INVALID_ARGUMENT = 5, /* a null pointer, or a number out of range */
  FLAGOS_VENDOR_ERROR = 6      /* the runtime reported an error */
} flagosStatus;

/* A stream of the vendor's runtime: cudaStream_t and the like. */
typedef void* flagosStream;

/* Finds the runtime: first among the libraries already loaded, then by opening `libraries` (`count` sonames) in order.
 * `prefix` is what its functions' names start with, e.g. "cuda". A second call after a success changes nothing. */
FLAGOS_EXPORT flagosStatus flagosOpen(const char* prefix, const char* const* libraries, size_t count);

/* Number of devices; 0 with FLAGOS_SUCCESS where the runtime says that it sees none. */
FLAGOS_EXPORT flagosStatus flagosDeviceCount(int* count);

/* Writes the device's name, cut to `size` bytes including the final zero. */
FLAGOS_EXPORT flagosStatus flagosDeviceName(int device, char* name, size_t size);

/* Free and total memory of a device in bytes. The calling thread's current device is the same afterwards. */
FLAGOS_EXPORT flagosStatus flagosMemoryInfo(int device, size_t* free_bytes, size_t* total_bytes);

/* Compute capability; both numbers are -1 for a runtime whose attribute numbers are not known here. */
FLAGOS_EXPORT flagosStatus flagosDeviceCapability(int device, int* major, int* minor);

/* Number of multiprocessors (compute units); -1 for a runtime whose attribute numbers are not known here. */
FLAGOS_EXPORT flagosStatus flagosMultiprocessorCount(int device, int* count);

/* Whether kernels on `device` can reach memory of `peer` directly: 1 or 0. A device is not its own peer. */
FLAGOS_EXPORT flagosStatus flagosCanAccessPeer(int device, int peer, int* can);

/* Versions as the runtime numbers them, e.g. 13000 for CUDA 13.0. */
FLAGOS_EXPORT flagosStatus flagosDriverVersion(int* version);
FLAGOS_EXPORT flagosStatus flagosRuntimeVersion(int* version);

/* Raw streams on the calling thread's current device; null is the default stream. */
FLAGOS_EXPORT flagosStatus flagosStreamCreate(flagosStream* stream);
FLAGOS_EXPORT flagosStatus flagosStreamDestroy(flagosStream stream);
FLAGOS_EXPORT flagosStatus flagosStreamQuery(flagosStream stream);
FLAGOS_EXPORT flagosStatus flagosStreamSynchronize(flagosStream stream);

/* A static text for a status. */
FLAGOS_EXPORT const char* flagosErrorText(flagosStatus status);

/* The calling thread's last failure in full; empty if there was none. Valid until the thread's next call. */
FLAGOS_EXPORT const char* flagosLastErrorText(void);

#if defined(__cplusplus)
}
#endif

#endif /* FLAGOS_FLAGOS_H_ */
