# One room = one folder under src = one static library weft_<room> = one namespace.
# A room's sources are globbed, so that adding a file (an op, an architecture, a command) is adding a file.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(dnnl REQUIRED QUIET)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(weft_xxhash_pc REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(weft_pcre2_pc REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(weft_sqlite_pc REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(weft_zip_pc REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(weft_edit_pc REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(weft_yaml_pc REQUIRED IMPORTED_TARGET yaml-cpp)
add_library(weft_xxhash ALIAS PkgConfig::weft_xxhash_pc)
add_library(weft_pcre2 ALIAS PkgConfig::weft_pcre2_pc)
add_library(weft_sqlite ALIAS PkgConfig::weft_sqlite_pc)
add_library(weft_zip ALIAS PkgConfig::weft_zip_pc)
add_library(weft_yaml ALIAS PkgConfig::weft_yaml_pc)
add_library(weft_edit ALIAS PkgConfig::weft_edit_pc)
if(WEFT_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  enable_testing()
endif()

add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers
                       -ffp-contract=off $<$<BOOL:${WEFT_WERROR}>:-Werror>)
# GCC 12 sees phantoms in std::string's operator+ (GCC PR 105329, 105651), and in headers that came
# precompiled it does not hold back what it sees in the library's.
target_compile_options(weft_flags INTERFACE
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>)
target_include_directories(weft_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(weft_flags INTERFACE WEFT_VERSION="${PROJECT_VERSION}")
target_link_libraries(weft_flags INTERFACE fmt::fmt)
if(WEFT_SANITIZE)
  target_compile_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=undefined)
  target_link_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
if(WEFT_FUZZ)
  target_compile_options(weft_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(weft_link target)
  cmake_parse_arguments(ARG "" "" "ROOMS;LINK" ${ARGN})
  list(TRANSFORM ARG_ROOMS PREPEND weft_)
  set(rooms "")
  foreach(room ${ARG_ROOMS})
    if(TARGET ${room})
      list(APPEND rooms ${room})
    endif()
  endforeach()
  target_link_libraries(${target} PUBLIC weft_flags ${rooms} ${ARG_LINK})
endfunction()

# Precompiled headers: what nearly every file includes, parsed once for the rooms (weft_headers), once
# for the command line (with JSON) and once for the tests. A source
# still includes what it uses: the presets fuzz and tidy build without them and notice.
# CMAKE_DISABLE_PRECOMPILE_HEADERS=ON turns them off, which suits a compiler cache.
set(WEFT_COMMON_HEADERS <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <map> <memory> <optional>
    <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>
    ${PROJECT_SOURCE_DIR}/src/base/status.h)
function(weft_headers_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINK" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cc CONTENT "// Carries the precompiled header of ${name}.\n")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE weft_flags ${ARG_LINK})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()
weft_headers_library(weft_headers HEADERS ${WEFT_COMMON_HEADERS})

# Whether a program checks itself (src/base/check.h): one of these two in every program.
add_library(weft_checks_on OBJECT ${PROJECT_SOURCE_DIR}/src/base/debug_checks_on.cc)
add_library(weft_checks_off OBJECT ${PROJECT_SOURCE_DIR}/src/base/debug_checks_off.cc)
target_link_libraries(weft_checks_on PRIVATE weft_flags)
target_link_libraries(weft_checks_off PRIVATE weft_flags)

# What tests, fuzzers and benchmarks share (tests/support). It links no room: a program links those that it
# tests, and takes from the archive what needs no others. Without GoogleTest there is only what fuzzers,
# benchmarks and weft-random-model use.
function(weft_test_support folder)
  if(WEFT_TESTS)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/support/*.cc)
    list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  else()
    set(sources architecture_cases.cc instruction_sets.cc random_weights.cc vocabularies.cc)
    list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/${folder}/support/)
  endif()
  add_library(weft_test_support STATIC EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(weft_test_support PUBLIC weft_flags)
  target_include_directories(weft_test_support PUBLIC ${PROJECT_SOURCE_DIR}/${folder})
  target_compile_definitions(weft_test_support PUBLIC
    WEFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" WEFT_BINARY_DIR="${PROJECT_BINARY_DIR}/checked")
  if(WEFT_TESTS)
    target_link_libraries(weft_test_support PUBLIC GTest::gmock)
    target_compile_options(weft_test_support PRIVATE ${WEFT_TEST_FLAGS})
    target_precompile_headers(weft_test_support REUSE_FROM weft_test_headers)
  endif()
endfunction()

# A gtest program, built by the target `tests`. Tests that need ../shared or a model skip themselves where
# it is absent and are counted as skipped, or fail (WEFT_REQUIRE_ALL=1).
if(WEFT_TESTS)
  add_custom_target(tests)
  weft_headers_library(weft_test_headers HEADERS ${WEFT_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>
                       LINK GTest::gmock)
  # A third quicker to compile than with -O2, and what takes time in a test is the rooms' code.
  set(WEFT_TEST_FLAGS $<$<CONFIG:Release>:-O1>)
  target_compile_options(weft_test_headers PRIVATE ${WEFT_TEST_FLAGS})
endif()
function(weft_test_program target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${target} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE weft_test_support ${ARG_LINK} weft_flags weft_checks_on
                        GTest::gmock GTest::gtest_main)
  # The header was compiled with -fPIC, as libraries are; an executable's own flag is -fPIE.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC ${WEFT_TEST_FLAGS})
  target_precompile_headers(${target} REUSE_FROM weft_test_headers)
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600)
  add_dependencies(tests ${target})
endfunction()

function(weft_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|_cpu\\.cc$|/debug_checks_o[nf]*\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(weft_${name} STATIC ${sources})
  weft_link(weft_${name} ${ARGN})
  target_precompile_headers(weft_${name} REUSE_FROM weft_headers)
  if(WEFT_TESTS AND tests)
    weft_test_program(${name}_test SOURCES ${tests} LINK weft_${name})
  endif()
endfunction()

# kernels: every *_cpu.cc is compiled once per instruction set, into namespace weft::kernels::<isa>. Which
# sets there are says src/kernels/isa.h (WEFT_ISAS, the third of each line). They are what -O3 gains for; the
# rest of the tree has -O2, and so has baseline, for CPUs that are over ten years old: there -O3 doubles what
# compiling takes.
set(WEFT_ISA_FLAGS_baseline "")
set(WEFT_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(WEFT_ISA_FLAGS_avx512 ${WEFT_ISA_FLAGS_avx2}
    -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mavx512vnni -mprefer-vector-width=512)

function(weft_kernels_room name)
  weft_room(${name} ${ARGN})
  file(GLOB isa_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*_cpu.cc)
  if(NOT TARGET weft_${name} OR NOT isa_sources)
    return()
  endif()
  set(isa_list ${PROJECT_SOURCE_DIR}/src/${name}/isa.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${isa_list})
  file(READ ${isa_list} isas)
  string(REGEX MATCHALL "X\\(k[A-Za-z0-9]+, [a-z0-9]+, [a-z0-9]+" isas "${isas}")
  list(TRANSFORM isas REPLACE ".*, " "")
  list(REMOVE_DUPLICATES isas)
  if(NOT isas)
    message(FATAL_ERROR "${isa_list}: no line of WEFT_ISAS found")
  endif()
  foreach(isa ${isas})
    if(NOT DEFINED WEFT_ISA_FLAGS_${isa})
      message(FATAL_ERROR "${isa_list}: ${isa} has no WEFT_ISA_FLAGS_${isa} in cmake/weft.cmake")
    endif()
    add_library(weft_${name}_${isa} OBJECT ${isa_sources})
    # GCC 12's own AVX-512 header trips these two (GCC PR 105593).
    target_compile_options(weft_${name}_${isa} PRIVATE ${WEFT_ISA_FLAGS_${isa}} -fno-math-errno -fno-trapping-math
                           $<$<AND:$<CONFIG:Release>,$<NOT:$<STREQUAL:${isa},baseline>>>:-O3>
                           $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>)
    target_compile_definitions(weft_${name}_${isa} PRIVATE WEFT_ISA=${isa} WEFT_ISA_${isa}=1)
    weft_link(weft_${name}_${isa} ${ARGN})
    target_sources(weft_${name} PRIVATE $<TARGET_OBJECTS:weft_${name}_${isa}>)
  endforeach()
endfunction()

# A program of main.cc, and a library weft_<folder> of all else, so that tests beside the code can link it.
function(weft_program folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|/main\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(weft_${folder} STATIC ${sources})
  weft_link(weft_${folder} ${ARGN})
  weft_headers_library(weft_${folder}_headers HEADERS ${WEFT_COMMON_HEADERS} <nlohmann/json.hpp>
                       LINK nlohmann_json::nlohmann_json)
  target_precompile_headers(weft_${folder} REUSE_FROM weft_${folder}_headers)
  # Twice: as users run it, and checking itself for the tests, which find it by WEFT_BINARY_DIR.
  add_library(weft_${folder}_main OBJECT ${PROJECT_SOURCE_DIR}/src/${folder}/main.cc)
  target_link_libraries(weft_${folder}_main PRIVATE weft_${folder})
  target_precompile_headers(weft_${folder}_main REUSE_FROM weft_${folder}_headers)
  add_executable(${name})
  target_link_libraries(${name} PRIVATE weft_${folder}_main weft_${folder} weft_checks_off)
  add_executable(${name}-checked EXCLUDE_FROM_ALL)
  target_link_libraries(${name}-checked PRIVATE weft_${folder}_main weft_${folder} weft_checks_on)
  set_target_properties(${name}-checked PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/checked)
  if(WEFT_TESTS AND tests)
    weft_test_program(${folder}_test SOURCES ${tests} LINK weft_${folder})
  endif()
endfunction()

# All rooms and the command line, for what runs across them.
function(weft_all_rooms out)
  set(rooms "")
  foreach(room cli bench eval retrieval engine fusion spec sampling sparse model kv text kernels gguf documents store tensor jinja
               base)
    if(TARGET weft_${room})
      list(APPEND rooms weft_${room})
    endif()
  endforeach()
  set(${out} ${rooms} PARENT_SCOPE)
endfunction()

# Tests across rooms: one program a file, all rooms linked. A folder of the test's name beside it
# (simulation/ for simulation_test.cc) holds its library, and in main.cc a program of the same name.
function(weft_tests folder)
  if(NOT WEFT_TESTS)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*_test.cc)
  weft_all_rooms(rooms)
  file(GLOB support_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/support/*_test.cc)
  weft_test_program(support_test SOURCES ${support_tests} LINK ${rooms})
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "_test$" "" name ${stem})
    set(library "")
    file(GLOB parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/${name}/*.cc)
    if(parts)
      list(FILTER parts EXCLUDE REGEX "/main\\.cc$")
      set(library weft_test_${name})
      add_library(${library} STATIC EXCLUDE_FROM_ALL ${parts})
      target_link_libraries(${library} PUBLIC weft_test_support ${rooms} weft_flags)
      target_precompile_headers(${library} REUSE_FROM weft_headers)
      add_executable(${name} EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/${folder}/${name}/main.cc)
      target_link_libraries(${name} PRIVATE ${library} weft_checks_on)
    endif()
    weft_test_program(${stem} SOURCES ${source} LINK ${library} ${rooms} nlohmann_json::nlohmann_json)
    add_dependencies(${stem} weft-checked)
  endforeach()
  # The recorder is preloaded into programs, so it is a library by itself, without sanitizers.
  add_library(weft-recorder MODULE EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/${folder}/recorder/recorder.cc)
  target_compile_options(weft-recorder PRIVATE -Wall -Wextra -Wshadow $<$<BOOL:${WEFT_WERROR}>:-Werror>)
  target_sources(durability_test PRIVATE
    ${PROJECT_SOURCE_DIR}/${folder}/recorder/cuts.cc ${PROJECT_SOURCE_DIR}/${folder}/recorder/replay.cc)
  target_compile_definitions(durability_test PRIVATE WEFT_RECORDER="$<TARGET_FILE:weft-recorder>")
  add_dependencies(durability_test weft-recorder)
endfunction()

# Fuzzers, one a file, linked with the rooms that the file includes: with libFuzzer (the preset fuzz), else
# as NAME_standalone with a driver of our own. The target `soak` builds what tools/soak.sh runs.
function(weft_fuzzers folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*_fuzz.cc)
  if(NOT WEFT_FUZZ)
    add_custom_target(soak)
    if(TARGET simulation)
      add_dependencies(soak simulation sequence_lives)
    endif()
    add_library(weft_fuzz_standalone OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/${folder}/standalone_main.cc)
    target_link_libraries(weft_fuzz_standalone PRIVATE weft_flags)
  endif()
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    file(STRINGS ${source} includes REGEX "^#include \"[a-z]+/")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    set(rooms "")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([a-z]+)/.*" "weft_\\1" room ${include})
      if(TARGET ${room})
        list(APPEND rooms ${room})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES rooms)
    if(WEFT_FUZZ)
      add_executable(${stem} ${source})
      target_link_libraries(${stem} PRIVATE weft_test_support ${rooms} weft_flags weft_checks_on)
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    else()
      add_executable(${stem}_standalone EXCLUDE_FROM_ALL ${source})
      target_link_libraries(${stem}_standalone PRIVATE
        weft_test_support ${rooms} weft_flags weft_checks_on weft_fuzz_standalone)
      add_dependencies(soak ${stem}_standalone)
    endif()
  endforeach()
endfunction()

# Google Benchmark programs, one a file; never part of `all` (make bench).
function(weft_benchmarks folder)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*_bench.cc)
  add_custom_target(bench)
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    add_executable(${stem} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${stem} PRIVATE
      weft_test_support ${ARGN} weft_flags weft_checks_off benchmark::benchmark)
    add_dependencies(bench ${stem})
  endforeach()
endfunction()
