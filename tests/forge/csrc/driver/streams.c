// The software device's streams and events. Work is done when a call returns, so there is never
// anything to wait for; events carry the host's time.

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "runtime.h"

static const uint64_t kStreamMagic = 0x464c41474f535354ULL;
static const uint64_t kEventMagic = 0x464c41474f534556ULL;

typedef struct {
  uint64_t magic;
  int device;
} Stream;

typedef struct {
  uint64_t magic;
  int device;
  atomic_uint_least64_t recorded_at;  // nanoseconds; 0: never recorded
} Event;

static atomic_uint_least64_t g_clock;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const uint64_t ns = (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
  // Two events never carry one time, so the time between them is never zero.
  uint64_t last = atomic_load(&g_clock);
  uint64_t next;
  do {
    next = ns > last ? ns : last + 1;
  } while (!atomic_compare_exchange_weak(&g_clock, &last, next));
  return next;
}

API(StreamCreate)(Stream** stream) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (stream == NULL) return fail(kInvalidValue);
  *stream = malloc(sizeof(Stream));
  if (*stream == NULL) return fail(kMemoryAllocation);
  (*stream)->magic = kStreamMagic;
  (*stream)->device = t_device;
  return kSuccess;
}

API(StreamDestroy)(Stream* stream) {
  if (stream == NULL || stream->magic != kStreamMagic) return fail(kInvalidHandle);
  stream->magic = 0;
  free(stream);
  return kSuccess;
}

// A null stream is the default stream.
API(StreamQuery)(Stream* stream) {
  if (stream != NULL && stream->magic != kStreamMagic) return fail(kInvalidHandle);
  return kSuccess;
}

API(StreamSynchronize)(Stream* stream) { return JOIN(PREFIX, StreamQuery)(stream); }

API(EventCreate)(Event** event) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (event == NULL) return fail(kInvalidValue);
  *event = malloc(sizeof(Event));
  if (*event == NULL) return fail(kMemoryAllocation);
  (*event)->magic = kEventMagic;
  (*event)->device = t_device;
  atomic_init(&(*event)->recorded_at, 0);
  return kSuccess;
}

API(EventDestroy)(Event* event) {
  if (event == NULL || event->magic != kEventMagic) return fail(kInvalidHandle);
  event->magic = 0;
  free(event);
  return kSuccess;
}

API(EventRecord)(Event* event, Stream* stream) {
  if (event == NULL || event->magic != kEventMagic) return fail(kInvalidHandle);
  if (stream != NULL && stream->magic != kStreamMagic) return fail(kInvalidHandle);
  atomic_store(&event->recorded_at, now());
  return kSuccess;
}

API(EventQuery)(Event* event) {
  if (event == NULL || event->magic != kEventMagic) return fail(kInvalidHandle);
  return kSuccess;
}

API(EventSynchronize)(Event* event) { return JOIN(PREFIX, EventQuery)(event); }

API(StreamWaitEvent)(Stream* stream, Event* event, unsigned flags) {
  if (flags != 0) return fail(kInvalidValue);
  if (stream != NULL && stream->magic != kStreamMagic) return fail(kInvalidHandle);
  return JOIN(PREFIX, EventQuery)(event);
}

// Milliseconds.
API(EventElapsedTime)(float* elapsed, Event* first, Event* second) {
  if (elapsed == NULL) return fail(kInvalidValue);
  if (first == NULL || second == NULL || first->magic != kEventMagic || second->magic != kEventMagic) {
    return fail(kInvalidHandle);
  }
  const uint64_t begin = atomic_load(&first->recorded_at);
  const uint64_t end = atomic_load(&second->recorded_at);
  if (begin == 0 || end == 0) return fail(kInvalidHandle);
  *elapsed = (float)((double)(int64_t)(end - begin) / 1e6);
  return kSuccess;
}
