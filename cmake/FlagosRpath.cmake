# flagos_set_rpath(): the only place where an RPATH is set.
#
# Libraries get DT_RUNPATH with exactly the entries given, at link time and again in the install tree. Two leaks are closed:
# CMake's own habit of adding link directories, and -rpath options in LDFLAGS (an interpreter built by pyenv brings some).

# Linker flags from the environment were taken over by project(); -rpath options among them are dropped, in the ways they
# are commonly written. What this misses, the check below catches.
set(unwanted_options
  "-Wl,--?rpath(-link)?[,=][^ ]*"
  "-Wl,--?rpath(-link)? +-Wl,[^ ]*"
  "-Wl,-R,?[^ ]*"
  "-Xlinker +--?rpath(-link)?=[^ ]*"
  "-Xlinker +--?rpath(-link)? +-Xlinker +[^ ]*"
  "-static-lib(stdc\\+\\+|gcc)")
foreach(flags CMAKE_SHARED_LINKER_FLAGS CMAKE_MODULE_LINKER_FLAGS CMAKE_C_FLAGS CMAKE_CXX_FLAGS)
  foreach(option ${unwanted_options})
    string(REGEX REPLACE "${option}" "" ${flags} "${${flags}}")
  endforeach()
endforeach()

# Libraries of the package: their own folder, the bundle, stock torch where the core is stock's, the driver.
set(FLAGOS_LIBRARY_RPATH "$ORIGIN" "$ORIGIN/../${FLAGOS_BUNDLE_DIR}")
if(FLAGOS_STOCK_CORE)
  list(APPEND FLAGOS_LIBRARY_RPATH "$ORIGIN/../../torch/lib")
endif()
list(APPEND FLAGOS_LIBRARY_RPATH ${FLAGOS_DRIVER_DIRS})
set(FLAGOS_EXTENSION_RPATH "$ORIGIN/lib" "$ORIGIN/${FLAGOS_BUNDLE_DIR}")

set(FLAGOS_RPATH_CHECK "${CMAKE_CURRENT_LIST_DIR}/FlagosRpathCheck.cmake")

function(flagos_set_rpath target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ENTRIES")
  if(NOT arg_ENTRIES)
    message(FATAL_ERROR "flagos_set_rpath(${target}): ENTRIES is missing, e.g. ENTRIES \$ORIGIN")
  endif()
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH_USE_LINK_PATH OFF
    INSTALL_REMOVE_ENVIRONMENT_RPATH ON
    INSTALL_RPATH "${arg_ENTRIES}")
  target_link_options(${target} PRIVATE -Wl,--enable-new-dtags)
  string(JOIN ":" expected ${arg_ENTRIES})
  # What the linker really wrote is read back: a leak fails the build.
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -DLIBRARY=$<TARGET_FILE:${target}> "-DEXPECTED=${expected}"
            "-DREADELF=${CMAKE_READELF}" -P "${FLAGOS_RPATH_CHECK}"
    VERBATIM)
endfunction()
