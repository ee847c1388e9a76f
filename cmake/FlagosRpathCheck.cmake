# cmake -DLIBRARY=... -DEXPECTED=a:b -DREADELF=... -P FlagosRpathCheck.cmake
# Fails unless LIBRARY has exactly the DT_RUNPATH expected, no DT_RPATH, and no C++ runtime of its own inside.

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

execute_process(COMMAND "${READELF}" -s -W --dyn-syms "${LIBRARY}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(symbols MATCHES "[0-9]+ _ZNSt8ios_base4InitC[12]Ev")
  message(FATAL_ERROR "${LIBRARY} has a C++ runtime linked into it; torch brings libstdc++.so.6, and two of them crash
  hint: look for -static-libstdc++ in LDFLAGS, CXXFLAGS and in the compiler's own configuration")
endif()
