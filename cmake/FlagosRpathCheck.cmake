# cmake -DLIBRARY=... -DEXPECTED=a:b -DREADELF=... -P FlagosRpathCheck.cmake
# Fails unless LIBRARY has exactly the DT_RUNPATH expected, and no DT_RPATH.

execute_process(COMMAND "${READELF}" -d -W "${LIBRARY}" OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(dynamic MATCHES "\\(RPATH\\)")
  message(FATAL_ERROR "${LIBRARY} has a DT_RPATH; expected DT_RUNPATH ${EXPECTED}")
endif()
set(found "")
if(dynamic MATCHES "\\(RUNPATH\\)[^[]*\\[([^]]*)\\]")
  set(found "${CMAKE_MATCH_1}")
endif()
if(NOT found STREQUAL EXPECTED)
  message(FATAL_ERROR "${LIBRARY} has DT_RUNPATH '${found}', expected '${EXPECTED}'
  hint: look for -rpath in LDFLAGS and in the compiler's own configuration")
endif()
