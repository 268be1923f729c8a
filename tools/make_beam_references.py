#!/usr/bin/env python3
"""Writes tests/golden/stories260k_beams.json: what transformers' beam search finds.

    pip install torch transformers gguf        # CPU suffices; the file says which versions it was
    tools/make_beam_references.py ../shared/models/stories260K/stories260Ktok512.gguf

The model is built from the GGUF's own F32 tensors, computes in 32-bit floats, and is checked first:
its greedy tokens must be llama.cpp's (tests/golden/stories260k_greedy.json). Each case is
`generate(num_beams=N, num_return_sequences=N, early_stopping=False, length_penalty=1.0)`.

A case's `end` are the tokens that end a text, in place of the model's own: that one, 2, it does not
say within its context. A newline or a full stop ends beams at many lengths, in every order. `never`
are ids that are not taken, whose share of probability others do not get. `stops` are texts that end
an answer with the token that completes one, over any number of tokens.

`margin` is the smallest difference that decided something: between neighbours among the candidates
of a step (one more than are kept), where the search asks whether it can still get better, and
between the scores returned. Sums and scores that are off by less than half of it give the same
tokens. A case whose margin is below --least-margin is refused: rounding could decide it otherwise.
"""
import argparse
import hashlib
import json
import pathlib
import sys

import gguf
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
GREEDY = ROOT / "tests/golden/stories260k_greedy.json"
OUT = ROOT / "tests/golden/stories260k_beams.json"

# Of weft tokenize, BOS first.
PROMPTS = {
    "Once upon a time": [1, 403, 407, 261, 378],
    "The little dog was sad because": [
        1, 291, 376, 400, 428, 286, 296, 418, 329, 429, 412, 425, 372],
    "Tom had a big red ball.": [1, 274, 287, 381, 261, 370, 352, 266, 268, 388, 426],
}
CONTEXT = 128  # of the model
BOS, END, NEWLINE, FULL_STOP = 1, 2, 13, 426
N_BEAMS = [1, 2, 4]


def cases():
    """(name, prompt, tokens at most, ids that end a text, ids that are never taken, stop texts)"""
    for text, ids in PROMPTS.items():
        yield "length", text, 60, [END], [], []
        yield "newline", text, 110, [NEWLINE], [], []
        yield "full stop", text, 60, [FULL_STOP], [], []
        yield "two ends", text, 110, [NEWLINE, FULL_STOP], [], []
        yield "end ignored", text, 60, [], [NEWLINE], []
        yield "stop texts", text, 80, [END], [], [" play", " to go", "had a", "very h"]
        # An answer of weft's may have one token more than there is room to run.
        yield "context", text, CONTEXT - len(ids) + 1, [END], [], []


def load(path):
    """transformers' own reader of GGUFs refuses this file, which has no padding token."""
    reader = gguf.GGUFReader(path)
    field = lambda name: reader.get_field(f"llama.{name}").contents()
    heads, kv_heads = field("attention.head_count"), field("attention.head_count_kv")
    tensors = {t.name: torch.tensor(t.data, dtype=torch.float32) for t in reader.tensors}
    config = transformers.LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0], hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"), num_hidden_layers=field("block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=field("context_length"), tie_word_embeddings=False,
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        bos_token_id=BOS, eos_token_id=END, pad_token_id=0)

    def halves(weight, n_heads):
        """GGUF's pairs of neighbours to transformers' pairs of halves."""
        rows, columns = weight.shape
        pairs = weight.reshape(n_heads, rows // n_heads // 2, 2, columns)
        return pairs.swapaxes(1, 2).reshape(rows, columns)

    state = {"model.embed_tokens.weight": tensors["token_embd.weight"],
             "model.norm.weight": tensors["output_norm.weight"],
             "lm_head.weight": tensors.get("output.weight", tensors["token_embd.weight"])}
    names = {"input_layernorm": "attn_norm", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for i in range(config.num_hidden_layers):
        for theirs, ours in names.items():
            state[f"model.layers.{i}.{theirs}.weight"] = tensors[f"blk.{i}.{ours}.weight"]
        for theirs, ours, n in [("q_proj", "attn_q", heads), ("k_proj", "attn_k", kv_heads)]:
            state[f"model.layers.{i}.self_attn.{theirs}.weight"] = halves(
                tensors[f"blk.{i}.{ours}.weight"], n)
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(state)
    pieces = reader.get_field("tokenizer.ggml.tokens").contents()
    return model.eval(), [piece.replace("\u2581", " ") for piece in pieces]


class StopTexts(transformers.StoppingCriteria):
    """transformers' own (StopStringCriteria) needs its tokenizer, which this model has not."""

    def __init__(self, stops, pieces, n_prompt):
        self.stops, self.pieces, self.n_prompt = stops, pieces, n_prompt

    def __call__(self, input_ids, scores, **_):
        texts = ["".join(self.pieces[i] for i in ids[self.n_prompt:]) for ids in input_ids.tolist()]
        return torch.tensor([any(stop in text for stop in self.stops) for text in texts])


class Margins:
    """Watches what a search decides by."""

    def __init__(self, model):
        self.model, self.least, self.steps = model, float("inf"), 0

    def see(self, sorted_values):
        real = sorted_values[sorted_values > -1e8]  # not what has no beam, or may not be chosen
        if len(real) > 1:
            self.least = min(self.least, (real[:-1] - real[1:]).min().item())

    def __enter__(self):
        cls = type(self.model)
        expand, stop = cls._get_top_k_continuations, cls._check_early_stop_heuristic

        def watch_expand(self_, accumulated_log_probs, beams_to_keep, **rest):
            self.see(torch.topk(accumulated_log_probs[0], beams_to_keep + 1)[0])
            self.steps += 1
            return expand(self_, accumulated_log_probs=accumulated_log_probs,
                          beams_to_keep=beams_to_keep, **rest)

        def watch_stop(**rest):
            if bool(rest["is_sent_finished"].all()):
                best = rest["running_beam_scores"][0, 0] / (
                    rest["cur_len"] - rest["decoder_prompt_len"])
                worst = rest["beam_scores"][0].min()
                self.see(torch.stack([torch.maximum(best, worst), torch.minimum(best, worst)]))
            return stop(**rest)

        self.model._get_top_k_continuations = watch_expand.__get__(self.model)
        self.model._check_early_stop_heuristic = watch_stop
        return self

    def __exit__(self, *_):
        del self.model._get_top_k_continuations, self.model._check_early_stop_heuristic


def search(model, pieces, prompt, n_beams, max_tokens, end, never, stops):
    ids = torch.tensor([prompt])
    criteria = [StopTexts(stops, pieces, len(prompt))] if stops else []
    with torch.no_grad(), Margins(model) as margins:
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=n_beams,
            num_return_sequences=n_beams, early_stopping=False, length_penalty=1.0, do_sample=False,
            max_new_tokens=max_tokens, eos_token_id=end or None, suppress_tokens=never or None,
            stopping_criteria=transformers.StoppingCriteriaList(criteria), pad_token_id=0,
            output_scores=True, output_logits=True, return_dict_in_generate=True)
    sequences = out.sequences[:, len(prompt):].tolist()
    if n_beams == 1:  # greedy search, which keeps no score: of the model's own probabilities
        logprobs = [s[0].double() - logits[0].double().logsumexp(-1)
                    for s, logits in zip(out.scores, out.logits)]
        for step in logprobs:
            margins.see(torch.topk(step, 2)[0])
        tokens = sequences[0]
        mean = sum(float(step[token]) for step, token in zip(logprobs, tokens)) / len(tokens)
        return len(tokens), margins.least, [{"tokens": tokens, "score": mean}]
    choices = []
    margins.see(out.sequences_scores)
    for tokens, beams, score in zip(sequences, out.beam_indices, out.sequences_scores):
        n_tokens = int((beams >= 0).sum())  # -1 where a sequence has ended
        choices.append({"tokens": tokens[:n_tokens], "score": float(score)})
    return margins.steps, margins.least, choices


def check_model(model, pieces):
    greedy = json.loads(GREEDY.read_text())
    n_tokens = CONTEXT - len(greedy["prompt"])
    _, _, choices = search(model, pieces, greedy["prompt"], 1, n_tokens, [], [], [])
    if choices[0]["tokens"] != greedy["greedy"][:n_tokens]:
        sys.exit(f"greedy tokens are not those of {GREEDY}: the model is not built as it should be")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--least-margin", type=float, default=1e-4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    model, pieces = load(arguments.model)
    check_model(model, pieces)
    found = []
    for name, text, max_tokens, end, never, stops in cases():
        for n_beams in N_BEAMS:
            steps, margin, choices = search(
                model, pieces, PROMPTS[text], n_beams, max_tokens, end, never, stops)
            lengths = [len(choice["tokens"]) for choice in choices]
            is_kept = margin >= arguments.least_margin
            print(f"{name}, {text!r}, {n_beams}: {steps} steps, margin {margin:.1e}, "
                  f"lengths {lengths}{'' if is_kept else '; LEFT OUT'}")
            if is_kept:
                found.append({"name": name, "text": text, "prompt": PROMPTS[text],
                              "n_beams": n_beams, "max_tokens": max_tokens, "end": end,
                              "never": never, "stops": stops, "steps": steps, "margin": margin,
                              "choices": choices})
    comment = (f"By tools/make_beam_references.py, which says what each field is: transformers "
               f"{transformers.__version__}, torch {torch.__version__}, CPU, 32-bit floats.")
    lines = ",\n".join("  " + json.dumps(case) for case in found)
    sha256 = hashlib.sha256(arguments.model.read_bytes()).hexdigest()
    OUT.write_text(f'{{"comment": {json.dumps(comment)},\n"sha256": "{sha256}",\n'
                   f'"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
