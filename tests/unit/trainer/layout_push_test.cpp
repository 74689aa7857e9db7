// Pushes from every layout into real engine fronts of every size.
#include "torch_doctest.hpp"

#include <algorithm>
#include <mutex>

#include "channels/shard_sources.hpp"
#include "layouts.hpp"
#include "unit/weights/stored_engine.hpp"
#include "weights/version.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

enum class Where { colocated, apart, mixed };

RankOptions placed(const LayoutOfTest& layout, int engine_devices, Where where) {
  RankOptions options = options_of(layout, parallel_config(true));
  placement::Request request;
  const int ranks = layout.size();
  const int beyond = std::max(engine_devices, ranks);  // devices behind the trainer's
  request.nodes = {where == Where::colocated ? ranks : ranks + beyond};
  request.colocate = where != Where::apart;
  request.actor_num_gpus_per_node = ranks;
  request.rollout_num_gpus = where == Where::colocated ? ranks : where == Where::apart ? beyond : ranks + beyond;
  request.rollout_num_gpus_per_engine = engine_devices;
  request.tensor_model_parallel_size = layout.tp;
  request.pipeline_model_parallel_size = layout.pp;
  request.context_parallel_size = layout.cp;
  options.plan = placement::make_plan(request);
  options.routes.clear();
  for (const placement::Engine& engine : options.plan.engines) {
    options.routes.push_back(engine.colocated ? spec::Route::memory : spec::Route::network);
  }
  return options;
}

// Whole tensors of a replica's shards, each at its offset.
std::vector<std::byte> put_together(const arch::ModelConfig& config, const weights::Bucket& bucket,
                                    const weights::ReplicaMemory& replica) {
  const tensor::DType dtype = bucket.entries.at(0).info.dtype;
  const channels::ShardSources sources(
      arch::replica_layouts(config, dtype, static_cast<int>(replica.ranks.at(0).size()),
                            static_cast<int>(replica.ranks.size())),
      replica.nearest);
  std::vector<std::byte> wholes(bucket.bytes);
  const std::vector<arch::Parameter> parameters = arch::parameters(config, dtype);
  for (const weights::BucketEntry& entry : bucket.entries) {
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const arch::Parameter& one) { return one.full.name == entry.info.name; });
    VIME_CHECK(parameter != parameters.end(), entry.info.name);
    const arch::Shard whole = arch::shard_of(*parameter, 0, 1);
    for (const channels::ShardSource& source : sources.of(*parameter, whole)) {
      const weights::SharedMemory& arena =
          replica.ranks[static_cast<size_t>(source.rank.stage)][static_cast<size_t>(source.rank.tp_rank)];
      arch::copy_overlap(parameter->full, source.entry->shard, arena.data + source.entry->offset, whole,
                         wholes.data() + entry.offset);
    }
  }
  return wholes;
}

// Two pushes into new engines, with a training step between them, and what each engine then holds.
void push_twice(const RankOptions& options, const fs::path& batch) {
  std::vector<std::unique_ptr<weights::StoredEngine>> engines;
  for (const placement::Engine& engine : options.plan.engines) {
    std::vector<std::string> uuids;
    for (int i = 0; i < engine.count; ++i) {
      uuids.push_back(options.plan.devices[static_cast<size_t>(engine.start + i)].uuid);
    }
    engines.push_back(std::make_unique<weights::StoredEngine>(engine.id, uuids));
    engines.back()->executor.put_together = [&options](const weights::Bucket& bucket,
                                                       const weights::ReplicaMemory& replica) {
      return put_together(options.config, bucket, replica);
    };
  }
  std::mutex mutex;
  std::map<int, std::vector<std::string>> errors;
  std::map<std::string, uint64_t> before, expected;  // of one replica
  run_layout(options, [&](TrainerRank& rank) {
    const std::string replica = rank.replica();
    for (const int64_t version : {1, 2}) {
      std::vector<PushTarget> targets;
      for (const auto& engine : engines) targets.push_back({engine->client->address(), version == 1});
      const PushFigures figures = rank.push(version, targets);
      {
        const std::lock_guard lock(mutex);
        for (const weights::EngineResult& result : figures.results) errors[result.engine].push_back(result.error);
        for (const PartSum& part : rank.checksums()) {
          if (part.copy == 0 && replica == "dp 0, cp 0") (version == 1 ? before : expected)[part.name] += part.sum;
        }
      }
      if (version == 1) rank.train(batch.string());
    }
  });
  CHECK(before != expected);
  for (size_t i = 0; i < engines.size(); ++i) {
    CAPTURE(i);
    CHECK(errors[static_cast<int>(i)] == std::vector<std::string>{"", ""});
    CHECK(weights::version_problems(2, {engines[i]->client->weight_version()}).empty());
    CHECK(weights::checksum_problems(expected, {{"engine", engines[i]->client->checksums()}}) ==
          std::vector<std::string>{});
    for (const auto& [name, sum] : expected) {
      CAPTURE(name);
      CHECK(engines[i]->executor.arrivals[name] == engines[i]->executor.world_size());
    }
  }
}

}  // namespace

TEST_CASE("from every layout every engine gets every parameter once: colocated, on other devices, and some of each") {
  const TempDir folder;
  const fs::path batch = folder.path() / "batch.safetensors";
  rollout::write_train_batch(batch, parallel_batch());
  for (const LayoutOfTest& layout : std::vector<LayoutOfTest>{{1, 1, 1, 1},
                                                              {2, 1, 1, 1},
                                                              {4, 1, 1, 1},
                                                              {8, 1, 1, 1},
                                                              {1, 4, 1, 1},
                                                              {2, 2, 1, 1},
                                                              {2, 2, 2, 1},
                                                              {1, 2, 1, 2}}) {
    for (const int devices : {1, 2, 4}) {
      for (const Where where : {Where::colocated, Where::apart, Where::mixed}) {
        if (where == Where::colocated && layout.size() % devices != 0) continue;
        if (where != Where::colocated && (layout.size() + std::max(devices, layout.size())) % devices != 0) continue;
        CAPTURE(layout.name());
        CAPTURE(devices);
        CAPTURE(static_cast<int>(where));
        push_twice(placed(layout, devices, where), batch);
      }
    }
  }
}

// Their arenas are not read from everywhere, and the slot of engine 0 has ranks of one that is on one node and of one
// that is on two.
TEST_CASE("ranks of replicas that lie on several nodes gather whole tensors for their slots") {
  const TempDir folder;
  const fs::path batch = folder.path() / "batch.safetensors";
  rollout::write_train_batch(batch, parallel_batch());
  for (const auto& [layout, devices] : std::vector<std::pair<LayoutOfTest, int>>{
           {{4, 1, 1, 1}, 1}, {{4, 1, 1, 1}, 2}, {{2, 2, 1, 1}, 2}, {{2, 1, 1, 3}, 3}, {{2, 1, 1, 3}, 1}}) {
    CAPTURE(layout.name());
    CAPTURE(devices);
    RankOptions options = placed(layout, 1, Where::colocated);
    placement::Request request;
    request.nodes = {layout.size() / 2, layout.size() / 2};
    request.actor_num_nodes = 2;
    request.actor_num_gpus_per_node = layout.size() / 2;
    request.rollout_num_gpus = layout.size();
    request.rollout_num_gpus_per_engine = devices;
    request.tensor_model_parallel_size = layout.tp;
    request.pipeline_model_parallel_size = layout.pp;
    options.plan = placement::make_plan(request);
    options.routes.assign(options.plan.engines.size(), spec::Route::memory);
    push_twice(options, batch);
  }
}
