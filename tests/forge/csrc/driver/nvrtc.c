// libcaffe2_nvrtc: opened by bare name at run time, never by DT_NEEDED; needs the driver itself.
//
// Compiled with DRIVER_PROBE, a function `int f(int*)` of the library that this one needs.

extern int DRIVER_PROBE(int* value);

__attribute__((visibility("default"))) int load_nvrtc(void) {
  int value = 0;
  return DRIVER_PROBE(&value);
}
