#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "runtime/flagos.h"

namespace {

/// Numbers of the attributes that are asked for; each runtime family counts its attributes in its own way.
struct AttributeNumbers {
  const char* prefix;
  int major;
  int minor;
  int multiprocessors;
};
constexpr AttributeNumbers kAttributeNumbers[] = {{"cuda", 75, 76, 16}, {"hip", 23, 61, 63}};
constexpr int kUnknown = -1;

/// Room for every runtime's property record (about 1 KiB today); each begins with 256 bytes of name.
constexpr size_t kPropertiesBytes = 16384;
constexpr size_t kNameBytes = 256;

/// The runtimes' own codes that are no failure here.
constexpr int kVendorSuccess = 0;
constexpr int kVendorNoDevice = 100;
constexpr int kVendorNotReady = 600;

struct Runtime {
  std::string prefix;
  void* library;
};

std::atomic<const Runtime*> g_runtime{nullptr};
thread_local std::string t_error;

flagosStatus fail(flagosStatus status, std::string text) {
  t_error = std::move(text);
  return status;
}

template <typename Signature>
Signature* find(const Runtime& runtime, const std::string& name) {
  return reinterpret_cast<Signature*>(dlsym(runtime.library, (runtime.prefix + name).c_str()));
}

flagosStatus vendor_error(const Runtime& runtime, const std::string& name, int code) {
  auto* text = find<const char*(int)>(runtime, "GetErrorString");
  return fail(FLAGOS_VENDOR_ERROR, runtime.prefix + name +
                                       " failed: " + (text != nullptr ? text(code) : "no error text") + " (" +
                                       std::to_string(code) + ")");
}

/// Calls one runtime function and leaves its own status code in `code`.
template <typename... Parameters, typename... Arguments>
flagosStatus call_raw(int& code, const std::string& name, Arguments... arguments) {
  const Runtime* runtime = g_runtime.load(std::memory_order_acquire);
  if (runtime == nullptr) {
    return fail(FLAGOS_NOT_OPEN, name + " was asked for before the runtime was opened");
  }
  auto* function = find<int(Parameters...)>(*runtime, name);
  if (function == nullptr) {
    return fail(FLAGOS_FUNCTION_MISSING, "the vendor's runtime has no function " + runtime->prefix + name);
  }
  code = function(arguments...);
  if (code != kVendorSuccess) {
    // The runtimes remember a failure until they are asked, and the next kernel launch would report it as its own.
    if (auto* forget = find<int()>(*runtime, "GetLastError")) {
      forget();
    }
  }
  return FLAGOS_SUCCESS;
}

template <typename... Parameters, typename... Arguments>
flagosStatus call(const std::string& name, Arguments... arguments) {
  int code = kVendorSuccess;
  const flagosStatus status = call_raw<Parameters...>(code, name, arguments...);
  if (status != FLAGOS_SUCCESS || code == kVendorSuccess) {
    return status;
  }
  return vendor_error(*g_runtime.load(std::memory_order_acquire), name, code);
}

flagosStatus invalid(const char* function) {
  return fail(FLAGOS_INVALID_ARGUMENT,
              std::string(function) + ": a pointer is null, or a size or device is out of range");
}

/// Makes a device current, and the previous one again at the end.
class DeviceSwitch {
 public:
  explicit DeviceSwitch(int device) {
    status_ = call<int*>("GetDevice", &previous_);
    if (status_ == FLAGOS_SUCCESS && previous_ != device) {
      status_ = call<int>("SetDevice", device);
      switched_ = status_ == FLAGOS_SUCCESS;
    }
  }
  ~DeviceSwitch() {
    if (switched_) {
      call<int>("SetDevice", previous_);
    }
  }
  DeviceSwitch(const DeviceSwitch&) = delete;
  DeviceSwitch& operator=(const DeviceSwitch&) = delete;

  flagosStatus status() const { return status_; }

 private:
  int previous_ = 0;
  bool switched_ = false;
  flagosStatus status_;
};

/// Asks for one attribute of a device; the value is kUnknown where the runtime's number for it is not known.
flagosStatus attribute(int device, int AttributeNumbers::* number, int* value) {
  const Runtime* runtime = g_runtime.load(std::memory_order_acquire);
  for (const AttributeNumbers& numbers : kAttributeNumbers) {
    if (runtime != nullptr && runtime->prefix == numbers.prefix) {
      return call<int*, int, int>("DeviceGetAttribute", value, numbers.*number, device);
    }
  }
  *value = kUnknown;
  // Nothing to ask this runtime for; a device that does not exist is refused all the same.
  int count = 0;
  const flagosStatus status = flagosDeviceCount(&count);
  return status == FLAGOS_SUCCESS && device >= count ? invalid("DeviceGetAttribute") : status;
}

/// Opens the libraries in order until one has the function that every runtime has.
void* open_library(const std::string& probe, const char* const* libraries, size_t count, std::string& reasons) {
  for (size_t i = 0; i < count; ++i) {
    void* library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && dlsym(library, probe.c_str()) != nullptr) {
      return library;
    }
    reasons +=
        std::string("; ") + libraries[i] + ": " + (library != nullptr ? "has no " + probe : std::string(dlerror()));
  }
  return nullptr;
}

}  // namespace

flagosStatus flagosOpen(const char* prefix, const char* const* libraries, size_t count) {
  if (prefix == nullptr || (libraries == nullptr && count > 0)) {
    return invalid(__func__);
  }
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (g_runtime.load(std::memory_order_acquire) != nullptr) {
    return FLAGOS_SUCCESS;
  }
  const std::string probe = std::string(prefix) + "GetDeviceCount";
  std::string reasons;
  void* library = RTLD_DEFAULT;
  if (dlsym(RTLD_DEFAULT, probe.c_str()) == nullptr) {
    library = open_library(probe, libraries, count, reasons);
    if (library == nullptr) {
      return fail(FLAGOS_LIBRARY_MISSING,
                  "the vendor's runtime was not found: no loaded library has " + probe + reasons);
    }
  }
  // Never freed: the runtime stays open until the process ends.
  g_runtime.store(new Runtime{prefix, library}, std::memory_order_release);
  return FLAGOS_SUCCESS;
}

flagosStatus flagosDeviceCount(int* count) {
  if (count == nullptr) {
    return invalid(__func__);
  }
  *count = 0;
  int code = kVendorSuccess;
  const flagosStatus status = call_raw<int*>(code, "GetDeviceCount", count);
  if (status != FLAGOS_SUCCESS || code == kVendorSuccess) {
    return status;
  }
  *count = 0;
  return code == kVendorNoDevice ? FLAGOS_SUCCESS
                                 : vendor_error(*g_runtime.load(std::memory_order_acquire), "GetDeviceCount", code);
}

flagosStatus flagosDeviceName(int device, char* name, size_t size) {
  if (name == nullptr || size == 0 || device < 0) {
    return invalid(__func__);
  }
  alignas(16) char properties[kPropertiesBytes] = {};
  flagosStatus status = FLAGOS_FUNCTION_MISSING;
  for (const char* function : {"GetDeviceProperties_v2", "GetDevicePropertiesR0600", "GetDeviceProperties"}) {
    status = call<void*, int>(function, properties, device);
    if (status != FLAGOS_FUNCTION_MISSING) {
      break;
    }
  }
  if (status == FLAGOS_SUCCESS) {
    const size_t length = std::min(strnlen(properties, kNameBytes), size - 1);
    std::memcpy(name, properties, length);
    name[length] = '\0';
  }
  return status;
}

flagosStatus flagosMemoryInfo(int device, size_t* free_bytes, size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr || device < 0) {
    return invalid(__func__);
  }
  const DeviceSwitch current(device);
  return current.status() == FLAGOS_SUCCESS ? call<size_t*, size_t*>("MemGetInfo", free_bytes, total_bytes)
                                            : current.status();
}

flagosStatus flagosDeviceCapability(int device, int* major, int* minor) {
  if (major == nullptr || minor == nullptr || device < 0) {
    return invalid(__func__);
  }
  const flagosStatus status = attribute(device, &AttributeNumbers::major, major);
  return status == FLAGOS_SUCCESS ? attribute(device, &AttributeNumbers::minor, minor) : status;
}

flagosStatus flagosMultiprocessorCount(int device, int* count) {
  if (count == nullptr || device < 0) {
    return invalid(__func__);
  }
  return attribute(device, &AttributeNumbers::multiprocessors, count);
}

flagosStatus flagosCanAccessPeer(int device, int peer, int* can) {
  if (can == nullptr || device < 0 || peer < 0) {
    return invalid(__func__);
  }
  return call<int*, int, int>("DeviceCanAccessPeer", can, device, peer);
}

flagosStatus flagosDriverVersion(int* version) {
  return version == nullptr ? invalid(__func__) : call<int*>("DriverGetVersion", version);
}

flagosStatus flagosRuntimeVersion(int* version) {
  return version == nullptr ? invalid(__func__) : call<int*>("RuntimeGetVersion", version);
}

flagosStatus flagosStreamCreate(flagosStream* stream) {
  return stream == nullptr ? invalid(__func__) : call<flagosStream*>("StreamCreate", stream);
}

flagosStatus flagosStreamDestroy(flagosStream stream) { return call<flagosStream>("StreamDestroy", stream); }

flagosStatus flagosStreamQuery(flagosStream stream) {
  int code = kVendorSuccess;
  const flagosStatus status = call_raw<flagosStream>(code, "StreamQuery", stream);
  if (status != FLAGOS_SUCCESS || code == kVendorSuccess) {
    return status;
  }
  return code == kVendorNotReady ? FLAGOS_NOT_READY
                                 : vendor_error(*g_runtime.load(std::memory_order_acquire), "StreamQuery", code);
}

flagosStatus flagosStreamSynchronize(flagosStream stream) { return call<flagosStream>("StreamSynchronize", stream); }

const char* flagosErrorText(flagosStatus status) {
  switch (status) {
    case FLAGOS_SUCCESS:
      return "success";
    case FLAGOS_NOT_READY:
      return "work is still running";
    case FLAGOS_NOT_OPEN:
      return "the vendor's runtime has not been opened";
    case FLAGOS_LIBRARY_MISSING:
      return "the vendor's runtime was not found";
    case FLAGOS_FUNCTION_MISSING:
      return "the vendor's runtime lacks a function";
    case FLAGOS_INVALID_ARGUMENT:
      return "invalid argument";
    case FLAGOS_VENDOR_ERROR:
      return "the vendor's runtime reported an error";
  }
  return "unknown status";
}

const char* flagosLastErrorText(void) { return t_error.c_str(); }
