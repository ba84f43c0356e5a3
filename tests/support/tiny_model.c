// SPDX-License-Identifier: Apache-2.0
// The tiny model writer. It shares no code with the readers under test.
#include "tiny_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const tiny_model_merges[TINY_MODEL_MERGES][2] = {
    {"t", "h"}, {"th", "e"}, {"h", "e"},   {"l", "l"},    {"he", "ll"},   {"hell", "o"},
    {" ", "w"}, {"o", "r"},  {" w", "or"}, {" wor", "l"}, {" worl", "d"}, {" ", "the"},
};

static tiny_model_options complete(const tiny_model_options *from) {
    tiny_model_options o = from ? *from : (tiny_model_options){0};
    if (!o.architecture) o.architecture = "LlamaForCausalLM";
    if (!o.layers) o.layers = 2;
    if (!o.hidden) o.hidden = 192;
    if (!o.intermediate) o.intermediate = 320;
    if (!o.q_heads) o.q_heads = 6;
    if (!o.kv_heads) o.kv_heads = 2;
    if (!o.head_dim) o.head_dim = 64;
    if (!o.vocab) o.vocab = 320;
    if (!o.context) o.context = 512;
    if (!o.rope_scaling) o.rope_scaling = "null";
    return o;
}

// ---- weights ----------------------------------------------------------------------------------------------------------
static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void tiny_model_fill(const tiny_model_options *options, const char *tensor, int64_t count, float *out) {
    uint64_t state = options ? options->seed : 0;
    for (const char *c = tensor; *c; c++) state = state * 31 + (unsigned char)*c;
    int norm = strstr(tensor, "norm") != NULL;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0; // four uniforms: bell-shaped, standard deviation sqrt(4/12)
        for (int j = 0; j < 4; j++) sum += (double)(splitmix64(&state) >> 11) * 0x1p-53 - 0.5;
        float value = (float)(norm ? 1 + 0.2 * sum : 0.09 * sum);
        uint32_t bits; // rounded to bf16 always, so that both storage types hold the same model
        memcpy(&bits, &value, 4);
        bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
        memcpy(&out[i], &bits, 4);
    }
}

typedef struct tensor {
    char name[96];
    int rows, cols; // rows 0: a vector
} tensor;

static int list_tensors(const tiny_model_options *o, tensor *out) {
    int n = 0, q = o->q_heads * o->head_dim, kv = o->kv_heads * o->head_dim,
        qk_norm = !strcmp(o->architecture, "Qwen3ForCausalLM");
    const struct {
        const char *name;
        int rows, cols;
    } rows[] = {{"input_layernorm", 0, o->hidden},
                {"self_attn.q_proj", q, o->hidden},
                {"self_attn.k_proj", kv, o->hidden},
                {"self_attn.v_proj", kv, o->hidden},
                {"self_attn.o_proj", o->hidden, q},
                {"post_attention_layernorm", 0, o->hidden},
                {"mlp.gate_proj", o->intermediate, o->hidden},
                {"mlp.up_proj", o->intermediate, o->hidden},
                {"mlp.down_proj", o->hidden, o->intermediate},
                {"self_attn.q_norm", 0, o->head_dim},
                {"self_attn.k_norm", 0, o->head_dim}};
    out[n++] = (tensor){"model.embed_tokens.weight", o->vocab, o->hidden};
    for (int layer = 0; layer < o->layers; layer++)
        for (int i = 0; i < (qk_norm ? 11 : 9); i++, n++) {
            snprintf(out[n].name, sizeof out[n].name, "model.layers.%d.%s.weight", layer, rows[i].name);
            out[n].rows = rows[i].rows;
            out[n].cols = rows[i].cols;
        }
    out[n++] = (tensor){"model.norm.weight", 0, o->hidden};
    if (o->untied) out[n++] = (tensor){"lm_head.weight", o->vocab, o->hidden};
    return n;
}

static int write_tensor(FILE *file, const tiny_model_options *o, const tensor *t) {
    int64_t count = (int64_t)(t->rows ? t->rows : 1) * t->cols;
    float *values = malloc((size_t)count * sizeof *values);
    if (!values) return -1;
    tiny_model_fill(o, t->name, count, values);
    size_t written = 0;
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *bytes = (const unsigned char *)&values[i]; // little-endian machine
        written += o->f32 ? fwrite(bytes, 4, 1, file) : fwrite(bytes + 2, 2, 1, file);
    }
    free(values);
    return written == (size_t)count ? 0 : -1;
}

static int write_safetensors(const char *path, const tiny_model_options *o, const tensor *tensors,
                             int count) {
    char *header = malloc((size_t)count * 256 + 64);
    FILE *file = header ? fopen(path, "wb") : NULL;
    int failed = !file;
    if (file) {
        int64_t at = 0;
        int length = sprintf(header, "{\"__metadata__\":{\"format\":\"pt\"}");
        for (int i = 0; i < count; i++) {
            int64_t bytes =
                (int64_t)(tensors[i].rows ? tensors[i].rows : 1) * tensors[i].cols * (o->f32 ? 4 : 2);
            char shape[48];
            if (tensors[i].rows)
                snprintf(shape, sizeof shape, "%d,%d", tensors[i].rows, tensors[i].cols);
            else
                snprintf(shape, sizeof shape, "%d", tensors[i].cols);
            length += sprintf(
                header + length, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}",
                tensors[i].name, o->f32 ? "F32" : "BF16", shape, (long long)at, (long long)(at + bytes));
            at += bytes;
        }
        length += sprintf(header + length, "}");
        while (length % 8) header[length++] = ' ';
        uint64_t header_bytes = (uint64_t)length;
        failed |= fwrite(&header_bytes, 8, 1, file) != 1 || fwrite(header, (size_t)length, 1, file) != 1;
        for (int i = 0; i < count; i++) failed |= write_tensor(file, o, &tensors[i]) != 0;
        failed |= fclose(file) != 0;
    }
    free(header);
    return failed ? -1 : 0;
}

static FILE *create(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "wb");
}

static int write_weights(const char *folder, const tiny_model_options *o) {
    char path[4096];
    tensor *tensors = calloc((size_t)o->layers * 11 + 3, sizeof *tensors);
    if (!tensors) return -1;
    int count = list_tensors(o, tensors), failed = 0, shards = o->shards > 1 ? o->shards : 1;
    if (shards == 1) {
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        failed = write_safetensors(path, o, tensors, count);
    } else {
        FILE *index = create(folder, "model.safetensors.index.json");
        if (index) fprintf(index, "{\"metadata\":{\"total_size\":0},\"weight_map\":{");
        for (int shard = 0; index && shard < shards; shard++) {
            int begin = count * shard / shards, end = count * (shard + 1) / shards;
            snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", folder, shard + 1, shards);
            failed |= write_safetensors(path, o, tensors + begin, end - begin);
            for (int i = begin; i < end; i++)
                fprintf(index, "%s\"%s\":\"%s\"", i ? "," : "", tensors[i].name, strrchr(path, '/') + 1);
        }
        if (index) fprintf(index, "}}\n");
        failed |= !index || fclose(index);
    }
    free(tensors);
    return failed ? -1 : 0;
}

// ---- configuration and tokenizer ------------------------------------------------------------------------------------------
static int write_config(const char *folder, const tiny_model_options *o) {
    FILE *file = create(folder, "config.json");
    if (!file) return -1;
    fprintf(file,
            "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"num_hidden_layers\":%d,\"hidden_size\":%d,"
            "\"intermediate_size\":%d,"
            "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,\"vocab_size\":%d,\"max_"
            "position_embeddings\":%d,"
            "\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"rope_scaling\":%s,\"hidden_act\":\"silu\",\"tie_"
            "word_embeddings\":%s,"
            "\"attention_bias\":false,\"torch_dtype\":\"%s\",\"bos_token_id\":%d,\"eos_token_id\":%d}\n",
            o->architecture, strcmp(o->architecture, "Qwen3ForCausalLM") ? "llama" : "qwen3", o->layers,
            o->hidden, o->intermediate, o->q_heads, o->kv_heads, o->head_dim, o->vocab, o->context,
            o->rope_scaling, o->untied ? "false" : "true", o->f32 ? "float32" : "bfloat16",
            TINY_MODEL_IM_START, TINY_MODEL_IM_END);
    if (fclose(file)) return -1;
    file = create(folder, "generation_config.json");
    if (!file) return -1;
    fprintf(file, "{\"eos_token_id\":[%d]}\n", TINY_MODEL_IM_END);
    return fclose(file) ? -1 : 0;
}

// Text in GPT-2's byte alphabet, escaped for JSON: bytes outside printable Latin-1 count up from U+0100.
static void put_alphabet(FILE *file, const char *bytes, int count) {
    for (int i = 0; i < count; i++) {
        int byte = (unsigned char)bytes[i], code = byte, others = 0;
        for (int b = 0; b < 256; b++) {
            int printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            if (!printable && b == byte) code = 256 + others;
            others += !printable;
        }
        if (code == '"' || code == '\\') fputc('\\', file);
        if (code < 128)
            fputc(code, file);
        else
            fprintf(file, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 63));
    }
}

static int write_tokenizer(const char *folder) {
    static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    FILE *file = create(folder, "tokenizer.json");
    if (!file) return -1;
    fprintf(file, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (int i = 0; i < 3; i++)
        fprintf(file,
                "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                "\"normalized\":false,"
                "\"special\":true}",
                i ? "," : "", TINY_MODEL_END + i, specials[i]);
    fprintf(file, "],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_"
                  "prefix_space\":false,"
                  "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
                  "\"ByteLevel\","
                  "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":"
                  "\"BPE\",\"dropout\":null,"
                  "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_"
                  "unk\":false,"
                  "\"byte_fallback\":false,\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        fprintf(file, "%s\"", b ? "," : "");
        put_alphabet(file, &byte, 1);
        fprintf(file, "\":%d", b);
    }
    for (int i = 0; i < TINY_MODEL_MERGES; i++) {
        fprintf(file, ",\"");
        for (int side = 0; side < 2; side++)
            put_alphabet(file, tiny_model_merges[i][side], (int)strlen(tiny_model_merges[i][side]));
        fprintf(file, "\":%d", 256 + i);
    }
    fprintf(file, "},\"merges\":[");
    for (int i = 0; i < TINY_MODEL_MERGES; i++) {
        fprintf(file, "%s[\"", i ? "," : "");
        put_alphabet(file, tiny_model_merges[i][0], (int)strlen(tiny_model_merges[i][0]));
        fprintf(file, "\",\"");
        put_alphabet(file, tiny_model_merges[i][1], (int)strlen(tiny_model_merges[i][1]));
        fprintf(file, "\"]");
    }
    fprintf(file, "]}}\n");
    if (fclose(file)) return -1;
    file = create(folder, "tokenizer_config.json");
    if (!file) return -1;
    fprintf(
        file,
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"bos_token\":\"<|im_start|>\",\"eos_token\":\"<|"
        "im_end|>\","
        "\"add_bos_token\":false,\"chat_template\":\"{%% for message in messages %%}{{ '<|im_start|>' + "
        "message['role'] + "
        "'\\n' + message['content'] + '<|im_end|>' + '\\n' }}{%% endfor %%}{%% if add_generation_prompt %%}"
        "{{ '<|im_start|>assistant\\n' }}{%% endif %%}\"}\n");
    return fclose(file) ? -1 : 0;
}

int tiny_model_write(const char *folder, const tiny_model_options *options) {
    tiny_model_options o = complete(options);
    if (mkdir(folder, 0777) && errno != EEXIST) return -1;
    return write_config(folder, &o) || write_tokenizer(folder) || write_weights(folder, &o) ? -1 : 0;
}
