"""Trains a tiny model with Hugging Face's Trainer: transformers_program.py DIRECTORY FILE. Steps are slow until FILE exists."""

import os
import sys
import time

print("starts", flush=True)
import torch  # noqa: E402
import transformers  # noqa: E402

SAMPLES, LENGTH, WORDS = 400, 8, 32
STEPS = 100


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        words = torch.arange(index, index + LENGTH) % WORDS
        return {"input_ids": words, "labels": words}


class Slow(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        if not os.path.exists(sys.argv[2]):
            time.sleep(0.2)


def main():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=LENGTH, vocab_size=WORDS)
    arguments = transformers.TrainingArguments(
        output_dir=sys.argv[1], max_steps=STEPS, per_device_train_batch_size=SAMPLES // STEPS * 2, logging_steps=1,
        learning_rate=0.01, save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=Samples(), callbacks=[Slow()]).train()
    print("trained", transformers.__version__, flush=True)


if __name__ == "__main__":
    main()
