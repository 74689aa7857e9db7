# How every dependency is found. Each becomes a target; nothing is downloaded. README.md beside this file lists them.

set(VIME_SUMMARY "")
macro(vime_note what)
  list(APPEND VIME_SUMMARY "${what}")
endmacro()

find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
vime_note("CLI11 ${CLI11_VERSION}")
find_package(nlohmann_json REQUIRED)
vime_note("nlohmann_json ${nlohmann_json_VERSION}")
find_package(fmt REQUIRED)
vime_note("fmt ${fmt_VERSION}")
find_package(spdlog REQUIRED)
vime_note("spdlog ${spdlog_VERSION}")
find_package(yaml-cpp REQUIRED)
vime_note("yaml-cpp ${yaml-cpp_VERSION}")
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
find_package(CURL REQUIRED)
vime_note("libcurl ${CURL_VERSION_STRING}")
find_package(ZLIB REQUIRED)
vime_note("zlib ${ZLIB_VERSION_STRING}")
find_package(Boost 1.74 REQUIRED)
vime_note("Boost ${Boost_VERSION}")

# Regular expressions and Unicode data, for tokenizers and the regex reward. OFF is for machines without their headers:
# tokenizer.json and that reward are then refused; byte and character tokenizers and chat templates stay.
if(VIME_TOKENIZERS)
  find_path(PCRE2_INCLUDE_DIR pcre2.h)
  find_library(PCRE2_LIBRARY pcre2-8)
  find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
  find_library(UTF8PROC_LIBRARY utf8proc)
  if(NOT PCRE2_INCLUDE_DIR OR NOT PCRE2_LIBRARY OR NOT UTF8PROC_INCLUDE_DIR OR NOT UTF8PROC_LIBRARY)
    message(FATAL_ERROR "VIME_TOKENIZERS is ON, but PCRE2 or utf8proc is missing: install libpcre2-dev and libutf8proc-dev, "
                        "or configure with -DVIME_TOKENIZERS=OFF")
  endif()
  file(STRINGS ${PCRE2_INCLUDE_DIR}/pcre2.h pcre2_version REGEX "^#define PCRE2_M(AJ|IN)OR")
  string(REGEX REPLACE "[^0-9]*PCRE2_MAJOR +([0-9]+).*PCRE2_MINOR +([0-9]+).*" "\\1.\\2" pcre2_version "${pcre2_version}")
  vime_note("PCRE2 ${pcre2_version}")
  file(STRINGS ${UTF8PROC_INCLUDE_DIR}/utf8proc.h utf8proc_version REGEX "^#define UTF8PROC_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" utf8proc_version "${utf8proc_version}")
  vime_note("utf8proc ${utf8proc_version}")
  add_library(vime_unicode INTERFACE)
  target_include_directories(vime_unicode SYSTEM INTERFACE ${PCRE2_INCLUDE_DIR} ${UTF8PROC_INCLUDE_DIR})
  target_link_libraries(vime_unicode INTERFACE ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY})
else()
  vime_note("tokenizer.json is not read, and there is no regex reward (VIME_TOKENIZERS=OFF)")
endif()

if(VIME_TESTS)
  find_package(doctest REQUIRED)
  vime_note("doctest ${doctest_VERSION}")
endif()

# LibTorch: the distribution's, or the one that a Python torch carries (-DTorch_DIR=... overrides).
if(VIME_TORCH)
  if(NOT Torch_DIR)
    find_package(Python3 COMPONENTS Interpreter QUIET)
    if(Python3_FOUND)
      execute_process(COMMAND ${Python3_EXECUTABLE} -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
                      OUTPUT_VARIABLE python_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(python_torch_prefix)
        list(PREPEND CMAKE_PREFIX_PATH ${python_torch_prefix})
      endif()
    endif()
  endif()
  find_package(Torch REQUIRED)
  # One interface target carries torch's headers, libraries and ABI flags to the rooms that ask for them, and to no others.
  add_library(vime_torch INTERFACE)
  target_include_directories(vime_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  # The C++ library goes first: the LibTorch of a Python torch exports parts of std::filesystem of its own, and a program that takes
  # those crashes in remove_all.
  target_link_libraries(vime_torch INTERFACE stdc++ ${TORCH_LIBRARIES})
  separate_arguments(torch_flags NATIVE_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(vime_torch INTERFACE ${torch_flags} -Wno-shadow -Wno-unused-parameter
                         -Wno-array-bounds -Wno-stringop-overflow)  # false alarms of GCC 13 inside its headers
  vime_note("LibTorch ${Torch_VERSION} at ${Torch_DIR}")
endif()

function(vime_print_summary)
  message(STATUS "vime ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, g++ ${CMAKE_CXX_COMPILER_VERSION}, sanitizers '${VIME_SANITIZE}', ccache '${CCACHE_PROGRAM}'")
  foreach(line IN LISTS VIME_SUMMARY)
    message(STATUS "  ${line}")
  endforeach()
endfunction()
