#include "bench/weight_sync.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/strings.hpp"
#include "bench/engine_process.hpp"
#include "bench/pushing_ranks.hpp"
#include "gpu/communicator.hpp"
#include "gpu/device.hpp"
#include "placement/placement.hpp"
#include "weights/version.hpp"

namespace vime::bench {
namespace {

constexpr milliseconds kTimeout{60'000};

int workers_of(const WeightSyncOptions& options) {
  if (options.engine_workers > 0) return options.engine_workers;
  return over_network(parse_transport(options.transport)) ? 1 : options.tensor_parallel;
}

void check_sizes(const WeightSyncOptions& options) {
  const Transport transport = parse_transport(options.transport);
  const int ranks = options.tensor_parallel, workers = workers_of(options);
  if (!over_network(transport) && ranks % workers != 0) {
    throw Error(ErrorKind::refused,
                "--engine-workers " + std::to_string(workers) + ": colocated engines share the devices of " +
                    std::to_string(ranks) + " trainer ranks, which they do not divide",
                "choose a divisor of --tensor-parallel");
  }
  if (options.whole_tensors && (ranks == 1 || over_network(transport))) {
    throw Error(ErrorKind::refused, "--whole-tensors is for colocated engines of several ranks",
                "leave it out: over the network, and from one rank, tensors are whole anyway");
  }
  const bool gathers = ranks > 1 && (over_network(transport) || options.whole_tensors);
  if (gathers && !on_gpus(transport)) {
    throw Error(ErrorKind::refused,
                "--transport " + options.transport + " with --tensor-parallel " + std::to_string(ranks) +
                    ": this benchmark brings whole tensors together on GPUs only",
                "--transport shm without --whole-tensors goes from several ranks");
  }
}

// Devices of the trainer's ranks, and of each engine's workers.
struct Devices {
  std::vector<std::string> ranks;
  std::vector<std::vector<std::string>> engines;
};

Devices choose_devices(const WeightSyncOptions& options, Transport transport) {
  const int ranks = options.tensor_parallel, workers = workers_of(options);
  const int needed = over_network(transport) ? ranks + workers : ranks;
  std::vector<std::string> uuids;
  for (int i = 0; i < needed; ++i) {
    if (!on_gpus(transport)) {
      uuids.push_back(placement::cpu_device_uuid("bench", 0, i));
      continue;
    }
    if (i >= gpu::device_count()) {
      const std::string why = gpu::built() ? "CUDA sees " + std::to_string(gpu::device_count())
                                           : std::string("this vime was built without CUDA");
      throw Error(ErrorKind::refused,
                  "--transport " + options.transport + ": GPUs needed: " + std::to_string(needed) + "; " + why,
                  "--transport shm or tcp goes without");
    }
    uuids.push_back(gpu::device_uuid(i));
  }
  Devices devices;
  devices.ranks.assign(uuids.begin(), uuids.begin() + ranks);
  for (auto at = over_network(transport) ? uuids.begin() + ranks : uuids.begin(); at < uuids.end(); at += workers)
    devices.engines.emplace_back(at, std::min(at + workers, uuids.end()));
  return devices;
}

struct Figures {
  PushTimes first;
  std::vector<PushTimes> later;
  // What a worker's part would take as one plain copy within its GPU, or over the network the whole model as one plain
  // broadcast to all workers, at the rate that raw_bytes of it have: nobody has room for more.
  double raw_ms = 0;
  uint64_t bytes = 0, raw_bytes = 0, extra_bytes = 0;
  std::size_t tensors = 0;
  bool equal = true;
};

double median(std::vector<PushTimes> times, double PushTimes::*of) {
  std::sort(times.begin(), times.end(), [of](const PushTimes& a, const PushTimes& b) { return a.*of < b.*of; });
  return times.empty() ? 0 : times[times.size() / 2].*of;
}

// bytes: that the first rank and every worker have room for.
double plain_ms(PushingRanks& ranks, EngineProcess& engine, Transport transport, int workers, uint64_t bytes,
                int repeat) {
  if (!on_gpus(transport)) return 0;
  if (transport == Transport::ipc) {
    return engine.call({{"call", "copy"}, {"handles", ranks.handles()}, {"bytes", bytes}, {"repeat", repeat}})
        .at("ms")
        .get<double>();
  }
  const std::string unique_id = gpu::Communicator::unique_id();
  engine.send({{"call", "broadcast"}, {"unique_id", unique_id}, {"bytes", bytes}, {"repeat", repeat + 1}});
  const double ms = ranks.quickest_broadcast_ms(unique_id, workers, bytes, repeat + 1);
  engine.reply();
  return ms;
}

// An engine in a process of its own.
struct Engine {
  EngineProcess process;
  weights::EngineClient client;
  std::vector<uint64_t> free_at_first;

  Engine(http::Client& http, int id, const std::vector<std::string>& command, const Json& options)
      : process(command, options),
        client(http, {id, "http://127.0.0.1:" + std::to_string(process.port()), ""}, kTimeout) {}
  std::vector<uint64_t> free_memory() {
    return process.call({{"call", "memory"}}).at("free").get<std::vector<uint64_t>>();
  }
  // That a worker has less now than at first.
  uint64_t taken() {
    uint64_t most = 0;
    const std::vector<uint64_t> now = free_memory();
    for (std::size_t i = 0; i < now.size(); ++i)
      most = std::max(most, free_at_first[i] - std::min(free_at_first[i], now[i]));
    return most;
  }
};

Figures measure(const WeightSyncOptions& options, const std::string& model_name) {
  const Transport transport = parse_transport(options.transport);
  const Devices devices = choose_devices(options, transport);
  RanksOptions ranks_options;
  const ModelList model = model_list(model_name);
  ranks_options.model = model;
  ranks_options.transport = transport;
  ranks_options.uuids = devices.ranks;
  ranks_options.engine_workers = workers_of(options);
  ranks_options.whole_tensors = options.whole_tensors;
  ranks_options.buffer_bytes = options.buffer_bytes;
  ranks_options.chunk_bytes = options.chunk_bytes;
  ranks_options.timeout = kTimeout;
  Figures figures;
  figures.bytes = bytes_of(ranks_options.model);
  figures.tensors = ranks_options.model.parameters.size();

  http::Client http;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<weights::EngineClient*> clients;
  for (const std::vector<std::string>& workers : devices.engines) {
    const Json engine_options = {
        {"model", model_name}, {"uuids", workers}, {"gpu", on_gpus(transport)}, {"timeout_ms", kTimeout.count()}};
    engines.push_back(
        std::make_unique<Engine>(http, static_cast<int>(engines.size()), options.engine_command, engine_options));
    clients.push_back(&engines.back()->client);
  }
  PushingRanks ranks(std::move(ranks_options));
  uint64_t taken = 0;
  for (int64_t version = 1; version <= options.repeat + 1; ++version) {
    ranks.new_weights(static_cast<uint64_t>(version));
    for (const auto& engine : engines) {
      if (version == 1) engine->free_at_first = engine->free_memory();
    }
    const PushTimes times = ranks.push(clients, version, version == 1);
    if (!times.error.empty()) throw Error(ErrorKind::process_failed, times.error);
    if (version == 1) {
      figures.first = times;
    } else {
      figures.later.push_back(times);
    }
    const std::map<std::string, uint64_t> sums = ranks.checksums();
    for (const auto& engine : engines) {
      figures.equal = figures.equal && weights::version_problems(version, {engine->client.weight_version()}).empty() &&
                      weights::checksum_problems(sums, {{"engine", engine->client.checksums()}}).empty();
      taken = std::max(taken, engine->taken());
    }
  }
  figures.extra_bytes = taken + ranks.extra_bytes();
  const int workers = workers_of(options);
  uint64_t of_worker = 0;  // the largest part of a worker
  uint64_t room = UINT64_MAX;
  for (int worker = 0; worker < workers; ++worker) {
    const uint64_t bytes = layout_of(model, worker, workers).total_bytes;
    of_worker = std::max(of_worker, bytes);
    room = std::min(room, bytes);
  }
  figures.raw_bytes = std::min(ranks.arena_bytes(), room);
  const uint64_t comparable = over_network(transport) ? figures.bytes : of_worker;
  figures.raw_ms = plain_ms(ranks, engines[0]->process, transport, workers, figures.raw_bytes, 3) *
                   static_cast<double>(comparable) / static_cast<double>(figures.raw_bytes);
  return figures;
}

Json to_json(const WeightSyncOptions& options, const std::string& model, const Figures& figures) {
  const double update_ms = 1000 * median(figures.later, &PushTimes::update_s);
  return {{"model", model},
          {"transport", options.transport},
          {"tensor_parallel", options.tensor_parallel},
          {"engine_workers", workers_of(options)},
          {"whole_tensors", options.whole_tensors},
          {"tensors", figures.tensors},
          {"bytes", figures.bytes},
          {"first_prepare_ms", 1000 * figures.first.prepare_s},
          {"first_pause_ms", 1000 * figures.first.pause_s},
          {"prepare_ms", 1000 * median(figures.later, &PushTimes::prepare_s)},
          {"pause_ms", 1000 * median(figures.later, &PushTimes::pause_s)},
          {"update_ms", update_ms},
          {"raw_ms", figures.raw_ms},
          {"raw_bytes", figures.raw_bytes},
          {"ratio", update_ms > 0 ? figures.raw_ms / update_ms : 0},
          {"extra_bytes", figures.extra_bytes},
          {"contents_equal", figures.equal}};
}

void print_head() {
  std::printf("%-14s %-5s %2s %3s %6s %10s %9s %9s %9s %9s %9s %9s %7s %6s %10s\n", "model", "by", "tp", "to", "count",
              "bytes", "1st prep", "1st pause", "prepare", "pause ms", "update ms", "raw ms", "GB/s", "ratio", "extra");
}

void print_line(const Json& line) {
  const double update_ms = line.at("update_ms").get<double>();
  std::printf("%-14s %-5s %2d %3d %6d %10s %9.1f %9.1f %9.2f %9.2f %9.2f %9.2f %7.1f %6.3f %10s %s\n",
              line.at("model").get<std::string>().c_str(), line.at("transport").get<std::string>().c_str(),
              line.at("tensor_parallel").get<int>(), line.at("engine_workers").get<int>(),
              line.at("tensors").get<int>(), format_bytes(line.at("bytes").get<uint64_t>()).c_str(),
              line.at("first_prepare_ms").get<double>(), line.at("first_pause_ms").get<double>(),
              line.at("prepare_ms").get<double>(), line.at("pause_ms").get<double>(), update_ms,
              line.at("raw_ms").get<double>(), line.at("bytes").get<double>() / update_ms / 1e6,
              line.at("ratio").get<double>(), format_bytes(line.at("extra_bytes").get<uint64_t>()).c_str(),
              line.at("contents_equal").get<bool>() ? "equal" : "DIFFER");
  std::fflush(stdout);
}

}  // namespace

WeightSyncOptions weight_sync_options(const Json& json) {
  const std::string what = "weight-sync options";
  WeightSyncOptions options;
  options.model = json_string(json, "model", what);
  options.transport = json_string(json, "transport", what);
  options.tensor_parallel = static_cast<int>(json_int(json, "tensor_parallel", what));
  options.engine_workers = static_cast<int>(json_int(json, "engine_workers", what));
  options.whole_tensors = json_bool(json, "whole_tensors", what);
  options.repeat = static_cast<int>(json_int(json, "repeat", what));
  options.buffer_bytes = static_cast<uint64_t>(json_int(json, "buffer_bytes", what));
  options.chunk_bytes = static_cast<uint64_t>(json_int(json, "chunk_bytes", what));
  options.json = json_bool(json, "json", what);
  options.engine_command = json_member(json, "engine_command", what).get<std::vector<std::string>>();
  return options;
}

int weight_sync(const WeightSyncOptions& options) {
  if (options.repeat < 1) throw Error(ErrorKind::refused, "--repeat must be at least 1");
  check_sizes(options);
  const std::vector<std::string> models =
      options.model == "all" ? model_names() : std::vector<std::string>{options.model};
  Json lines = Json::array();
  bool equal = true;
  for (const std::string& model : models) {
    lines.push_back(to_json(options, model, measure(options, model)));
    if (!options.json && lines.size() == 1) print_head();
    if (!options.json) print_line(lines.back());
    equal = equal && lines.back().at("contents_equal").get<bool>();
  }
  if (options.json) std::printf("%s\n", Json{{"weight_sync", lines}}.dump(2).c_str());
  return equal ? 0 : exit_status(ErrorKind::check_failed);
}

}  // namespace vime::bench
