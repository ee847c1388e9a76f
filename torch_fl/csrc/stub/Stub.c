#include <Python.h>

/* The module itself lives in libtorch_bindings.so; this file is all that depends on the interpreter's naming. */
extern PyObject* initFlagosModule(void);

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) { return initFlagosModule(); }
