#include <CLI/CLI.hpp>

#include "commands.hpp"

namespace vime::app {

void add_spec_arguments(CLI::App& command, SpecArguments& arguments) {
  command.add_option("CONFIG", arguments.config, "YAML experiment spec")->required()->type_name("");
  // One value per --set, or the next positional argument would be swallowed.
  command
      .add_option("--set", arguments.overrides,
                  "Change a key of the spec, for example trainer.lr=1e-3; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace vime::app
