// People type what they know from Ollama, llama.cpp, git or a shell. A plain "unknown command"
// sends them to the help; a sentence with the command that does what they meant lets them go on. So
// there are tables of other programs' words with an answer each, for what spelling cannot tell
// ("pull" is near to no command and means model get), and for all else the nearest word by edit
// distance. Every sentence is whole, names the command to type, and says it where weft has nothing
// of the kind.
#include "cli/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/edit_distance.h"

namespace weft::cli {
namespace {

// Longer words are no command; the distance takes time by the product of both lengths.
constexpr size_t kMostBytes = 64;
constexpr size_t kLeastPrefix = 3;

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

/// `group` is "" for weft itself; in kFlagsOfCommands it is the command.
struct Foreign {
  std::string_view group;
  std::string_view word;
  std::string_view sentence;
};

// Ollama's commands, then words that documents' programs have.
constexpr Foreign kCommands[] = {
    {"", "run",
     "weft has no `run`: weft chat -m MODEL talks with a model, weft generate -m MODEL PROMPT "
     "answers once"},
    {"", "passkey", "weft's is a command of eval: weft eval passkey -m MODEL"},
    {"", "pull", "weft has no `pull`: weft model get NAME fetches a model"},
    {"", "push", "weft has no `push`: it uploads nothing; a model is a GGUF file, to be copied"},
    {"", "create",
     "weft has no `create`: a model is a GGUF file, without a Modelfile; weft quantize writes it "
     "in "
     "another type, weft chat -s and the flags of sampling say how it answers"},
    {"", "cp",
     "weft has no `cp`: a model is a GGUF file (weft model path NAME), which cp copies; -m takes "
     "the copy's path"},
    {"", "embed",
     "weft has no `embed`: it makes no embeddings; weft ask finds passages by their words, in "
     "documents that weft ingest took in"},
    {"", "get", "weft has no `get`: weft model get NAME fetches a model"},
    {"", "list", "weft has no `list`: weft model ls lists the models"},
    {"", "ls",
     "weft has no `ls`: weft model ls lists the models, weft docs ls --store DIR a store's "
     "documents, weft cache ls its records"},
    {"", "rm",
     "weft has no `rm`: weft model rm NAME removes a model, weft docs rm --store DIR a store's "
     "documents, weft cache rm its records"},
    {"", "show", "weft has no `show`: weft inspect MODEL shows what a model's file holds"},
    {"", "ps",
     "weft has no `ps`: there is no server and no model stays loaded, every command opens its own "
     "and ends with it"},
    {"", "stop",
     "weft has no `stop`: there is no server and no model stays loaded, every command opens its "
     "own "
     "and ends with it"},
    {"", "serve",
     "weft has no `serve`: there is no server yet; weft ask --json and weft generate --batch FILE "
     "answer line by line, for other programs"},
    {"", "embeddings",
     "weft has no `embeddings`: it makes none; weft ask finds passages by their words, in "
     "documents that weft ingest took in"},
    {"", "version", "weft has no `version`: weft --version says it"},
    {"", "search", "weft has no `search`: weft ask -m MODEL --store DIR QUESTION answers"},
    {"", "query", "weft has no `query`: weft ask -m MODEL --store DIR QUESTION answers"},
    {"", "index", "weft has no `index`: weft ingest -m MODEL --store DIR PATH takes documents in"},
    {"", "add", "weft has no `add`: weft ingest -m MODEL --store DIR PATH takes documents in"},
    {"chat", "/show", "chat has no /show: /set says the settings, weft inspect MODEL the model"},
    {"model", "pull", "weft model has no `pull`: weft model get NAME fetches a model"},
    {"model", "fetch", "weft model has no `fetch`: weft model get NAME fetches a model"},
    {"model", "download", "weft model has no `download`: weft model get NAME fetches a model"},
    {"model", "list", "weft model has no `list`: weft model ls lists the models"},
    {"model", "remove", "weft model has no `remove`: weft model rm NAME removes a model"},
    {"model", "delete", "weft model has no `delete`: weft model rm NAME removes a model"},
    {"model", "show", "weft model has no `show`: weft inspect MODEL shows what its file holds"},
    {"cache", "list", "weft cache has no `list`: weft cache ls --store DIR lists the records"},
    {"docs", "add", "weft docs has no `add`: weft ingest --store DIR PATH takes documents in"},
    {"cache", "repair",
     "weft cache has no `repair`: weft cache verify --repair removes what is damaged"},
    {"cache", "clear",
     "weft cache has no `clear`: weft cache rm --all --store DIR removes every "
     "record"},
};

/// Words of other programs for commands that several groups have.
constexpr std::pair<std::string_view, std::string_view> kUsual[] = {
    {"list", "ls"},     {"show", "ls"},  {"dir", "ls"},       {"remove", "rm"},   {"delete", "rm"},
    {"del", "rm"},      {"erase", "rm"}, {"unlink", "rm"},    {"forget", "rm"},   {"prune", "gc"},
    {"clean", "gc"},    {"purge", "gc"}, {"vacuum", "gc"},    {"info", "stat"},   {"stats", "stat"},
    {"status", "stat"}, {"du", "stat"},  {"check", "verify"}, {"fsck", "verify"},
};

constexpr std::string_view kNoGpu =
    "weft has no GPU layers to place; it runs on the CPU, with -t threads";
constexpr std::string_view kMapped = "weft always maps the model's file, and never locks it";
constexpr std::string_view kBatches = "weft chooses its batches itself";
constexpr std::string_view kChat = "weft chat talks, weft generate answers once";
constexpr std::string_view kStops = "weft's is --stop TEXT";
constexpr std::string_view kGrammar = "weft does not bind an answer to a grammar or a schema";
constexpr std::string_view kSession = "weft generate's and weft chat's is --session FILE";
constexpr std::string_view kRope = "weft takes RoPE's settings from the model's file";
constexpr std::string_view kPool = "weft's requests always share one pool of KV pages";
constexpr std::string_view kDraftModel =
    "weft's is --draft MODEL: a smaller model's name or file, of the same vocabulary";
constexpr std::string_view kDraftTokens =
    "weft's is --draft-tokens N, and --draft says what guesses (ngram, self or a model)";
constexpr std::string_view kDraftLeast =
    "weft guesses as many tokens as pay, from none to --draft-tokens";
constexpr std::string_view kDraftOwn =
    "of the draft model weft takes only --draft MODEL; the rest is as for -m";
constexpr std::string_view kSamplers =
    "weft's are --temp, --top-k, --top-p, --min-p and --repeat-penalty";
constexpr std::string_view kReuse = "how the stored KV is reused is said by --reuse";

// llama.cpp's flags first, then Ollama's and the OpenAI API's names.
constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"-ngl", kNoGpu},
    {"--n-gpu-layers", kNoGpu},
    {"--gpu-layers", kNoGpu},
    {"-ts", kNoGpu},
    {"--tensor-split", kNoGpu},
    {"-mg", kNoGpu},
    {"--main-gpu", kNoGpu},
    {"-fa", "weft's attention is always computed in one pass; there is nothing to switch on"},
    {"--flash-attn",
     "weft's attention is always computed in one pass; there is nothing to switch on"},
    {"--prompt-cache", kSession},
    {"--prompt-cache-all", kSession},
    {"--prompt-cache-ro", kSession},
    {"--slot-save-path", kSession},
    {"--no-context-shift", "weft shifts only with --context-shift"},
    {"--cache-reuse", "weft finds what prompts begin with by itself, and documents with ask"},
    {"-np", "weft generate's is --parallel (samples of a prompt) or --batch (many prompts)"},
    {"-nkvo", kNoGpu},
    {"--no-kv-offload", kNoGpu},
    {"-kvu", kPool},
    {"--kv-unified", kPool},
    {"--rope-scaling", kRope},
    {"--rope-scale", kRope},
    {"--rope-freq-base", kRope},
    {"-st", "weft generate answers once"},
    {"--single-turn", "weft generate answers once"},
    {"-e", "weft takes a prompt's bytes as they are; a shell's $'\\n' is a line break"},
    {"--escape", "weft takes a prompt's bytes as they are; a shell's $'\\n' is a line break"},
    {"--mlock", kMapped},
    {"--no-mmap", kMapped},
    {"--mmap", kMapped},
    {"-b", kBatches},
    {"-ub", kBatches},
    {"--batch-size", kBatches},
    {"--ubatch-size", kBatches},
    {"-tb", "weft has one number of threads, -t"},
    {"--threads-batch", "weft has one number of threads, -t"},
    {"-cnv", kChat},
    {"--conversation", kChat},
    {"-no-cnv", "weft generate --raw takes the prompt as it is"},
    {"--no-conversation", "weft generate --raw takes the prompt as it is"},
    {"-i", kChat},
    {"--interactive", kChat},
    {"-sys", "weft chat's is --system TEXT"},
    {"--system-prompt", "weft chat's is --system TEXT"},
    {"-r", kStops},
    {"--reverse-prompt", kStops},
    {"-s", "weft's seed is --seed, and weft chat's -s the system turn"},
    {"-hf", "weft downloads only its known models: weft model get NAME"},
    {"--hf-repo", "weft downloads only its known models: weft model get NAME"},
    {"--chat-template", "weft takes the template that the model's file holds"},
    {"--temperature", "weft's is --temp"},
    {"--num-predict", "weft's is -n"},
    {"--max-tokens", "weft's is -n"},
    {"--num-ctx", "weft's is -c"},
    {"--num-beams", "weft generate's is --beams"},
    {"--gan", "weft's is --grp-attn-n (-gan)"},
    {"--gaw", "weft's is --grp-attn-w (-gaw)"},
    {"-npp", "weft bench batch's are -p (tokens of a prompt), -n (new ones) and --batch"},
    {"-ntg", "weft bench batch's are -p (tokens of a prompt), -n (new ones) and --batch"},
    {"-npl", "weft bench batch's are -p (tokens of a prompt), -n (new ones) and --batch"},
    {"--yarn-orig-ctx",
     "weft takes RoPE as the model's file has it; --grp-attn-n reads longer texts"},
    {"-V", "weft's is -v (or --version)"},
    {"--keepalive", "weft keeps no model loaded: every command opens its own and ends with it"},
    {"--jinja", "weft always uses the template that the model's file holds"},
    {"--color", "weft colours nothing"},
    {"-co", "weft colours nothing"},
    {"--format", kGrammar},
    {"--grammar", kGrammar},
    {"--grammar-file", kGrammar},
    {"--json-schema", kGrammar},
    {"-j", kGrammar},
    {"-md", kDraftModel},
    {"--model-draft", kDraftModel},
    {"--spec-type", "weft's is --draft, ngram, self or a smaller model"},
    {"--draft-max", kDraftTokens},
    {"--draft-n", kDraftTokens},
    {"--draft-min", kDraftLeast},
    {"--draft-n-min", kDraftLeast},
    {"--draft-p-min", kDraftLeast},
    {"-cd", kDraftOwn},
    {"--ctx-size-draft", kDraftOwn},
    {"-td", kDraftOwn},
    {"--threads-draft", kDraftOwn},
    {"-ngld", kNoGpu},
    {"--spec-draft-n-max", kDraftTokens},
    {"--lookup", "weft's is --draft ngram"},
    {"-lcs", "weft's is --draft ngram, which keeps nothing from one answer to the next"},
    {"--lookup-cache-static",
     "weft's is --draft ngram, which keeps nothing from one answer to the next"},
    {"--mirostat", kSamplers},
    {"--typical", kSamplers},
    {"--budget-tokens", "weft's is --budget"},
    {"--verbose", "this command has no more to tell; --json, where a command has it, says most"},
};

/// Of one command alone: what others know as its flag.
constexpr Foreign kFlagsOfCommands[] = {
    {"chat", "-p",
     "weft chat reads what you say from the terminal, or line by line from a pipe; weft generate "
     "-m MODEL -p PROMPT answers once"},
    {"chat", "-f", "weft chat reads lines from standard input: weft chat -m MODEL < FILE"},
    {"chat", "--file", "weft chat reads lines from standard input: weft chat -m MODEL < FILE"},
    {"chat", "-k",
     "weft's are --chunks (passages in the prompt) and --top-k (tokens to choose of)"},
    {"chat", "--keepalive", "weft chat keeps the model open until you leave"},
    {"chat", "--mode", kReuse},
    {"ask", "--mode", kReuse},
    {"ask", "-k", "weft's are --chunks (passages in the prompt) and --top-k (tokens to choose of)"},
    {"sparse", "--sparse", "weft eval sparse's is --policies, several with commas"},
    {"sparse", "--policy", "weft eval sparse's is --policies, several with commas"},
    {"sparse", "--length", "weft eval sparse's is --lengths, several with commas"},
    {"batch", "-b", "weft bench batch's is --batch, numbers of sequences"},
    {"batch", "-r", "weft bench batch's is --repeat"},
    {"speed", "-r", "weft bench speed's is --repeat"},
    {"ask", "-p", "the question is an argument by itself: weft ask --store DIR QUESTION"},
    {"ask", "-f", "weft ask reads questions line by line: weft ask --store DIR < FILE"},
    {"ask", "--file", "weft ask reads questions line by line: weft ask --store DIR < FILE"},
};

constexpr std::pair<std::string_view, std::string_view> kShortForms[] = {
    {"-ctk", "--cache-type-k"},
    {"-gan", "--grp-attn-n"},
    {"-gaw", "--grp-attn-w"},
    {"-ctv", "--cache-type-v"},
};

}  // namespace

/// A third of the letters may be wrong, one in short words: "gte" is get, "genrate" generate,
/// "frobnicate" nothing. More, and any word has a neighbour. A tie goes to the first of the list. A
/// beginning counts only where a single word has it ("quan" is quantize), and only where no
/// spelling is near.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& words) {
  if (word.size() > kMostBytes) return std::nullopt;
  const std::string wanted = ascii_lower(without_dashes(word));
  if (wanted.empty()) return std::nullopt;
  const std::string* best = nullptr;
  const std::string* only_longer = nullptr;  // begins with what was written
  size_t least = std::max<size_t>(wanted.size() / 3, 1) + 1;
  size_t n_longer = 0;
  for (const std::string& candidate : words) {
    const std::string name = ascii_lower(without_dashes(candidate));
    if (name.size() < 2) continue;  // of one letter, everything is near to it
    const size_t distance = edit_distance(wanted, name);
    if (distance < least && distance < name.size()) {
      least = distance;
      best = &candidate;
    }
    if (wanted.size() >= kLeastPrefix && name.starts_with(wanted)) {
      only_longer = &candidate;
      ++n_longer;
    }
  }
  if (best == nullptr && n_longer == 1) best = only_longer;
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& words) {
  const std::optional<std::string> meant = closest(word, words);
  return meant ? fmt::format(": did you mean {}?", *meant) : "";
}

std::optional<std::string_view> foreign_command(std::string_view group, std::string_view word) {
  for (const Foreign& foreign : kCommands) {
    if (foreign.group == group && foreign.word == word) return foreign.sentence;
  }
  return std::nullopt;
}

/// Only where the group has the command: "prune" is gc in `weft cache` and nothing in `weft model`.
std::optional<std::string> usual_command(std::string_view word,
                                         const std::vector<std::string>& words) {
  if (word.size() > kMostBytes) return std::nullopt;
  const std::string wanted = ascii_lower(word);
  for (const auto& [usual, name] : kUsual) {
    if (usual == wanted && std::ranges::find(words, name) != words.end()) return std::string(name);
  }
  return std::nullopt;
}

/// What the command itself says comes first: -p is one thing to chat and another to ask.
std::optional<std::string_view> foreign_flag(std::string_view command, std::string_view flag) {
  const std::string_view without_number = flag.substr(0, flag.find_last_not_of("0123456789") + 1);
  if (without_number.size() > 2) flag = without_number;  // of "-s4" the command may know -s
  for (const Foreign& foreign : kFlagsOfCommands) {
    if (foreign.group == command && foreign.word == flag) return foreign.sentence;
  }
  for (const auto& [name, sentence] : kFlags) {
    if (name == flag) return sentence;
  }
  return std::nullopt;
}

std::string_view long_form(std::string_view flag) {
  for (const auto& [name, meant] : kShortForms) {
    if (name == flag) return meant;
  }
  return "";
}

/// `weft -m model -p prompt`, as llama-cli is started.
bool is_prompt_flag(std::string_view flag) {
  constexpr std::string_view kNames[] = {"-m", "--model", "-p", "--prompt", "-f", "--file",
                                         "-n", "-c",      "-t", "-s",       "-i", "-cnv"};
  return std::ranges::find(kNames, flag) != std::end(kNames);
}

bool is_remove_flag(std::string_view flag) {
  constexpr std::string_view kNames[] = {"-r", "-R", "-f", "-rf", "-fr", "--recursive", "--force"};
  return std::ranges::find(kNames, flag) != std::end(kNames);
}

std::vector<std::string> foreign_flags() {
  std::vector<std::string> names;
  for (const auto& [name, sentence] : kFlags) names.emplace_back(name);
  return names;
}

}  // namespace weft::cli
