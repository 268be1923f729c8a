#include "text/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/hash.h"

namespace weft::text {

/// How one template writes turns. In every string but the name, kBosMark and kEosMark stand for the
/// texts of those tokens.
struct ChatFormat::Row {
  const char* name;
  size_t template_bytes;
  const char* template_hash;  // hash128 of the template's text

  const char* prologue;              // before everything
  const char* default_system;        // of a conversation that does not begin with one; null: none
  std::array<const char*, 3> open;   // before a turn's text, by role
  std::array<const char*, 3> close;  // behind it
  const char* generation_prompt;
  const char* epilogue;  // instead of the generation prompt

  bool skips_empty_system = false;
  // Mistral: user and assistant take turns, after one system turn at most; the system's text stands
  // in the last turn, if that is a user's.
  bool system_in_last_user = false;
};

namespace {

constexpr std::string_view kBosMark = "\x01";
constexpr std::string_view kEosMark = "\x02";

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      break;
  }
  return "assistant";
}

}  // namespace

struct ChatFormat::Rows {
  static constexpr std::array<const char*, 3> kChatMlOpen = {
      "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"};
  static constexpr std::array<const char*, 3> kChatMlClose = {"<|im_end|>\n", "<|im_end|>\n",
                                                              "<|im_end|>\n"};
  static constexpr Row kAll[] = {
      {.name = "SmolLM2",
       .template_bytes = 368,
       .template_hash = "98f63cc3d421d28f99ab995e9629dacd",
       .prologue = "",
       .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
       .open = kChatMlOpen,
       .close = kChatMlClose,
       .generation_prompt = "<|im_start|>assistant\n",
       .epilogue = ""},
      {.name = "Qwen2.5",
       .template_bytes = 2507,
       .template_hash = "c63bde148c12b98b639547fe4d33fa67",
       .prologue = "",
       .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
       .open = kChatMlOpen,
       .close = kChatMlClose,
       .generation_prompt = "<|im_start|>assistant\n",
       .epilogue = ""},
      {.name = "MiMo-VL",
       .template_bytes = 2471,
       .template_hash = "39d2945a5dbc0d5d0536ae9be84138fa",
       .prologue = "",
       .default_system = "You are MiMo, an AI assistant developed by Xiaomi.",
       .open = kChatMlOpen,
       .close = kChatMlClose,
       .generation_prompt = "<|im_start|>assistant\n",
       .epilogue = ""},
      {.name = "Phi-3.5",
       .template_bytes = 430,
       .template_hash = "ceaa31b1554ec3f5cd8aff863abd4554",
       .prologue = "",
       .default_system = nullptr,
       .open = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
       .close = {"<|end|>\n", "<|end|>\n", "<|end|>\n"},
       .generation_prompt = "<|assistant|>\n",
       .epilogue = "\x02",
       .skips_empty_system = true},
      {.name = "Mistral-Nemo",
       .template_bytes = 3945,
       .template_hash = "35d4ff6a64a580b5feffc399e07a9069",
       .prologue = "\x01",
       .default_system = nullptr,
       .open = {"", "[INST]", ""},
       .close = {"\n\n", "[/INST]", "\x02"},
       .generation_prompt = "",
       .epilogue = "",
       .system_in_last_user = true},
  };
};

/// Appends to a list of segments, joining neighbours of one kind.
class ChatFormat::Writer {
 public:
  explicit Writer(const ChatFormat& format) : format_(format) {}

  // The template's own text.
  void control(std::string_view text) {
    for (const char c : text) {
      if (c == kBosMark[0]) {
        put(format_.bos_, true);
      } else if (c == kEosMark[0]) {
        put(format_.eos_, true);
      } else {
        put({&c, 1}, true);
      }
    }
  }
  void plain(std::string_view text) { put(text, false); }
  void open(Role role) { control(format_.row_->open[static_cast<size_t>(role)]); }
  void close(Role role) { control(format_.row_->close[static_cast<size_t>(role)]); }

  // A system turn: `text`, or the template's default.
  void system(std::optional<std::string_view> text) {
    const Row& row = *format_.row_;
    if (!text && row.default_system == nullptr) return;
    if (text && text->empty() && row.skips_empty_system) return;
    open(Role::kSystem);
    if (text) {
      plain(*text);
    } else {
      control(row.default_system);
    }
    close(Role::kSystem);
  }

  std::vector<Segment> take() { return std::move(segments_); }

 private:
  void put(std::string_view text, bool special) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().special != special)
      segments_.push_back({"", special});
    segments_.back().text += text;
  }

  const ChatFormat& format_;
  std::vector<Segment> segments_;
};

const char* ChatFormat::name() const { return row_->name; }

Status ChatFormat::check_turns(std::span<const Turn> turns) const {
  if (turns.empty()) return invalid_argument("a conversation needs at least one turn");
  if (!row_->system_in_last_user) return Status::ok();
  const size_t first = turns[0].role == Role::kSystem ? 1 : 0;
  for (size_t i = first; i < turns.size(); ++i) {
    const Role wanted = (i - first) % 2 == 0 ? Role::kUser : Role::kAssistant;
    if (turns[i].role != wanted) {
      return invalid_argument(fmt::format(
          "turn {} is a {} turn: after one optional system turn, {}'s chat template wants user and "
          "assistant in turn",
          i + 1, role_name(turns[i].role), row_->name));
    }
  }
  return Status::ok();
}

Result<std::vector<Segment>> ChatFormat::render(std::span<const Turn> turns,
                                                bool add_generation_prompt) const {
  WEFT_RETURN_IF_ERROR(check_turns(turns));
  Writer writer(*this);
  writer.control(row_->prologue);
  std::optional<std::string_view> late_system;
  const bool begins_with_system = turns[0].role == Role::kSystem;
  if (begins_with_system && row_->system_in_last_user) {
    late_system = turns[0].text;
    turns = turns.subspan(1);
  } else if (!begins_with_system) {
    writer.system(std::nullopt);
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    if (turn.role == Role::kSystem) {
      writer.system(turn.text);
      continue;
    }
    writer.open(turn.role);
    if (turn.role == Role::kUser && i + 1 == turns.size() && late_system) {
      writer.system(*late_system);
    }
    writer.plain(turn.text);
    writer.close(turn.role);
  }
  writer.control(add_generation_prompt ? row_->generation_prompt : row_->epilogue);
  return writer.take();
}

std::vector<Segment> ChatFormat::user_opening(std::optional<std::string_view> system) const {
  Writer writer(*this);
  writer.control(row_->prologue);
  if (!row_->system_in_last_user) writer.system(system);
  writer.open(Role::kUser);
  if (row_->system_in_last_user) writer.system(system);
  return writer.take();
}

std::vector<Segment> ChatFormat::turn_opening(Role role) const {
  Writer writer(*this);
  writer.open(role);
  return writer.take();
}

std::vector<Segment> ChatFormat::user_closing() const {
  Writer writer(*this);
  writer.close(Role::kUser);
  writer.control(row_->generation_prompt);
  return writer.take();
}

Result<ChatFormat> find_chat_format(std::string_view template_text, std::string_view bos,
                                    std::string_view eos) {
  const std::string hash = hash128(std::as_bytes(std::span(template_text))).to_hex();
  std::string known;
  for (const ChatFormat::Row& row : ChatFormat::Rows::kAll) {
    if (row.template_bytes == template_text.size() && hash == row.template_hash) {
      return ChatFormat(row, bos, eos);
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return unsupported(
      fmt::format("the model's chat template ({} bytes, XXH3 {}) is none of the known ones ({}); "
                  "--raw gives the model the prompt as it is",
                  template_text.size(), hash, known));
}

Result<std::vector<int32_t>> encode_segments(const Tokenizer& tokenizer,
                                             std::span<const Segment> segments) {
  std::vector<int32_t> ids;
  for (const Segment& segment : segments) {
    EncodeOptions options;
    options.parse_special = segment.special;
    options.continues_text = !ids.empty() && !tokenizer.is_control(ids.back());
    WEFT_ASSIGN_OR_RETURN(const auto more, tokenizer.encode(segment.text, options));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace weft::text
