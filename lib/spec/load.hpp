// Reading an experiment spec: YAML file and overrides -> defaults -> derived values -> checks. Nothing is started; the
// disk is read only to see that named folders exist. Everything that is wrong is reported in one Error{refused}, one
// line each, "file:line:column: sentence".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "devices/devices.hpp"
#include "spec/spec.hpp"

namespace vime::spec {

// The GPUs of this machine; asked only where a spec does not name the CPU. Null: it has none.
using FindGpus = std::function<devices::Inventory()>;

// Overrides ("trainer.lr=1e-3", the argument of --set) follow the same rules as the file and win over it, the last over
// earlier ones.
ExperimentSpec load(const fs::path& file, const std::vector<std::string>& overrides = {},
                    const FindGpus& find_gpus = {});

// The same for text that is already here; `name` stands for the file in errors.
ExperimentSpec parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {},
                     const FindGpus& find_gpus = {});

// A resolved spec that was written earlier, value by value: nothing is derived, nothing is held against the disk or
// against other keys. Error{refused} for text that is no spec, or that has keys or values of another version.
ExperimentSpec read_resolved(const std::string& text, const std::string& name);
ExperimentSpec load_resolved(const fs::path& file);

}  // namespace vime::spec
