// How many software devices this process has.

#ifndef FLAGOS_SOFTWARE_DEVICES_H
#define FLAGOS_SOFTWARE_DEVICES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMaxDevices = 64 };

// FLAGOS_SOFTWARE_DEVICES, default 2; a value that is no such number is named and gives no devices.
static inline int software_devices(void) {
  const char* text = getenv("FLAGOS_SOFTWARE_DEVICES");
  if (text == NULL || *text == '\0') return 2;
  char* end = NULL;
  errno = 0;
  const long count = strtol(text, &end, 10);
  if (errno != 0 || *end != '\0' || count < 0 || count > kMaxDevices) {
    fprintf(stderr, "software device: FLAGOS_SOFTWARE_DEVICES=%s, expected 0 to %d; no devices\n", text,
            (int)kMaxDevices);
    return 0;
  }
  return (int)count;
}

#endif
