# vime_room(<name> [TORCH] SOURCES ... [DEPENDS <rooms>] [LIBRARIES <third-party targets>])
# One room = one folder under lib = one static library = one namespace. DEPENDS lists every room whose headers it includes;
# scripts/check-layers holds the #include lines against it. LIBRARIES stay private: their headers belong in .cpp files.
function(vime_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(ROOM_TORCH AND NOT VIME_TORCH)
    return()
  endif()
  list(TRANSFORM ROOM_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/lib/${name}/)
  add_library(${name} STATIC ${ROOM_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/lib)
  target_link_libraries(${name} PUBLIC ${ROOM_DEPENDS} PRIVATE vime_flags ${ROOM_LIBRARIES})
  if(ROOM_TORCH)
    target_link_libraries(${name} PUBLIC vime_torch)
    vime_precompiled(${name} torch_pch)
  else()
    vime_precompiled(${name} json_pch)
  endif()
endfunction()

# The target's sources find the headers of torch_pch or json_pch compiled. GCC takes them only with the code model that
# they were made for, which is that of the libraries.
function(vime_precompiled target pch)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  # With precompiled headers GCC 12 imagines still more string sizes at -O3 than -Wno-restrict is for.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Wno-stringop-overflow -Wno-array-bounds>)
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()
