# The daemon itself. Its parts are a library of their own, so that tests can link them.
add_library(fsdpd_parts STATIC config.c config_file.c config_peers.c config_value.c)
target_include_directories(fsdpd_parts PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(fsdpd_parts PUBLIC fsdpd_runtime)

add_executable(fsdpd main.c options.c loop.c bulk.c plane.c sockets.c notifier.c notices.c)
target_link_libraries(fsdpd PRIVATE fsdpd_parts fsdpd_serve fsdpd_group fsdpd_engine fsdpd_zmq fsdpd_transport fsdpd_store
	fsdpd_math fsdp_proto fsdpd_runtime PkgConfig::SYSTEMD Threads::Threads)
install(TARGETS fsdpd RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR})
