// weft completions: what a shell needs to complete weft's command line.
// The scripts themselves are in completions.cc; here is the command that prints one, to be sourced
// (`source <(weft completions bash)`) or put where a shell looks, as `make install` does.
#include <cstdio>

#include "cli/app.h"
#include "cli/completions.h"

namespace weft::cli {

// `line` is described when the command runs and not here: commands that are added later count.
void add_completions_command(Command root, App& app, const CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  Command command = root.add_command("completions", "Print a shell's completions of this program");
  command.add_option("shell", *shell, "the shell").required().one_of(completion_shells());
  command.when_given([shell, &app, &line] {
    app.run = [shell, &line]() -> Status {
      WEFT_ASSIGN_OR_RETURN(const std::string script, completion_script(line.describe(), *shell));
      std::fwrite(script.data(), 1, script.size(), stdout);
      return Status::ok();
    };
  });
}

}  // namespace weft::cli
