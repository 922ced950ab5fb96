// A transformer encoder for queries: packed texts to vectors, with the products of `linear.hpp`.
//
// BERT and what came of it: norms before or after, rotary or given positions, gated layers, windows, shared keys,
// causal attention. Which of these a model has, and where its numbers are in the file, comes from Python
// (native_description.py), which declares the same structures.

#include <algorithm>
#include <exception>

#include "attention.hpp"

namespace mar {

struct Norm {
    int64_t weight, bias;  // -1 for none; a norm without weight is none where `absent`
    int32_t absent, unused;
};

struct Layer {
    Linear qkv, out, up, down;
    Norm before, after, query, key;  // before or after attention and the layer behind it
    int64_t cosines, sines;
    int32_t window, unused;
};

struct Step {                  // what comes after pooling
    int32_t kind, activation;  // 0 linear, 1 norm, 2 length 1
    Linear linear;
    Norm norm;
    float eps;
    int32_t unused;
};

struct Model {
    int32_t hidden, inner, head_size, heads, key_heads, layers, steps, dim;
    int32_t activation, gated, pre_norm, rms, causal, unused;
    float eps, scale;
    int64_t types, positions;  // added to token embeddings: one row; a table
    Norm embeddings, last;
};

class Encoder {
  public:
    Encoder(const char* file, const Model& model, const Layer* layers, const Step* steps, int threads)
        : file_(file),
          model_(model),
          layers_(layers, layers + model.layers),
          steps_(steps, steps + model.steps),
          team_(threads),
          desks_(threads),
          spare_desks_(threads) {}

    // Of `rows` tokens in `texts` texts: embeddings (rows, hidden), their positions, the first row of each text and
    // the end of the last. Pooled are `count` times one row of `single`, or all rows by `weights` (count, stride).
    // Vectors (count, dim).
    void run(const float* embeddings, const int64_t* positions, const int32_t* starts, int rows, int texts,
             const int64_t* single, const float* weights, int stride, int count, float* vectors) {
        const Model& m = model_;
        float* x = x_.get(static_cast<size_t>(rows) * m.hidden);
        bool chosen = false;
        int longest = 0;
        for (int text = 0; text < texts; ++text) longest = std::max(longest, starts[text + 1] - starts[text]);
        for (Desk& desk : desks_) desk.resize(longest, m.head_size);
        rows_of(rows, [&](int row) {
            begin(embeddings + static_cast<size_t>(row) * m.hidden, positions[row],
                  x + static_cast<size_t>(row) * m.hidden);
        });
        if (!m.pre_norm) prepare(rows, m.embeddings, true, true);
        for (size_t i = 0; i < layers_.size(); ++i) {
            const Layer& layer = layers_[i];
            const bool last = i + 1 == layers_.size();
            if (m.pre_norm) prepare(rows, layer.before, false, true);
            attention(layer, positions, starts, rows, texts);
            if (last && single && count < rows) {  // of the other rows nothing is needed from here on
                choose(single, count);
                rows = count;
                chosen = true;
            }
            quantise(context_.data(), m.heads * m.head_size, rows);
            linear(team_, file_, layer.out, in_, {x, m.hidden, IDENTITY, false, true});
            if (!m.pre_norm)
                prepare(rows, layer.before, true, true);
            else
                prepare(rows, layer.after, false, true);
            linear(team_, file_, layer.up, in_, m.activation, m.gated != 0, m.inner, inner_, spare_desks_);
            linear(team_, file_, layer.down, inner_, {x, m.hidden, IDENTITY, false, true});
            if (!m.pre_norm) prepare(rows, layer.after, true, !last);
        }
        if (m.pre_norm) prepare(rows, m.last, true, false);
        finish(rows, count, single, chosen, weights, stride, vectors);
    }

  private:
    const float* at(int64_t place) const { return place < 0 ? nullptr : reinterpret_cast<const float*>(file_ + place); }

    // Calls f(row). Rows of a part are 4 bytes apart in what the next layer reads, so a thread does a whole part.
    template <class F>
    void rows_of(int rows, F&& f) {
        const int parts = ceil_div(rows, ROWS);
        team_.each(parts, [&](int part, int) {
            for (int row = rows * part / parts; row < rows * (part + 1) / parts; ++row) f(row);
        });
    }

    void begin(const float* embedding, int64_t position, float* x) {
        const int hidden = model_.hidden;
        std::memcpy(x, embedding, sizeof(float) * hidden);
        if (const float* types = at(model_.types))
            for (int i = 0; i < hidden; ++i) x[i] += types[i];
        if (const float* table = at(model_.positions))
            for (int i = 0; i < hidden; ++i) x[i] += table[position * hidden + i];
        if (model_.pre_norm) normalised(x, model_.embeddings, x);
    }

    bool normalised(const float* x, const Norm& norm, float* out) {
        if (norm.absent) return false;
        normalise(x, model_.hidden, at(norm.weight), at(norm.bias), model_.eps, model_.rms, out);
        return true;
    }

    // Rows of x through a norm: kept in x or not, and as activations of the next layer or not.
    void prepare(int rows, const Norm& norm, bool keep, bool next) {
        const int hidden = model_.hidden;
        if (next) in_.resize(rows, hidden);
        float* aside = keep ? nullptr : aside_.get(static_cast<size_t>(rows) * hidden);
        rows_of(rows, [&, this](int row) {
            float* x = x_.data() + static_cast<size_t>(row) * hidden;
            float* out = keep ? x : aside + static_cast<size_t>(row) * hidden;
            const float* result = normalised(x, norm, out) ? out : x;
            if (next) in_.set(row, result);
        });
    }

    void quantise(const float* from, int width, int rows) {
        in_.resize(rows, width);
        rows_of(rows, [&](int row) { in_.set(row, from + static_cast<size_t>(row) * width); });
    }

    void attention(const Layer& layer, const int64_t* positions, const int32_t* starts, int rows, int texts) {
        const Model& m = model_;
        const int width = m.heads * m.head_size, wide = width + 2 * m.key_heads * m.head_size;
        float* qkv = qkv_.get(static_cast<size_t>(rows) * wide);
        linear(team_, file_, layer.qkv, in_, {qkv, wide});
        const Heads heads{m.head_size,
                          m.heads,
                          m.key_heads,
                          m.scale,
                          m.causal != 0,
                          layer.window,
                          at(layer.cosines),
                          at(layer.sines),
                          at(layer.query.weight),
                          at(layer.key.weight),
                          m.eps};
        float* context = context_.get(static_cast<size_t>(rows) * width);
        team_.each(texts * m.heads, [&](int item, int thread) {
            const int from = starts[item / m.heads], length = starts[item / m.heads + 1] - from;
            (length > 16 ? attend<2> : attend<1>)(qkv + static_cast<size_t>(from) * wide, positions + from, length,
                                                  item % m.heads, heads, desks_[thread],
                                                  context + static_cast<size_t>(from) * width);
        });
    }

    // Keeps some rows of x and of the results of attention, in the order given.
    void choose(const int64_t* rows, int count) {
        const int hidden = model_.hidden, width = model_.heads * model_.head_size;
        float *x = aside_.get(static_cast<size_t>(count) * hidden),
              *context = spare_.get(static_cast<size_t>(count) * width);
        for (int i = 0; i < count; ++i) {
            std::memcpy(x + static_cast<size_t>(i) * hidden, x_.data() + rows[i] * hidden, sizeof(float) * hidden);
            std::memcpy(context + static_cast<size_t>(i) * width, context_.data() + rows[i] * width,
                        sizeof(float) * width);
        }
        std::memcpy(x_.data(), x, sizeof(float) * count * hidden);
        std::memcpy(context_.data(), context, sizeof(float) * count * width);
    }

    // Pooling and what comes after it.
    void finish(int rows, int count, const int64_t* single, bool chosen, const float* weights, int stride,
                float* vectors) {
        int width = model_.hidden;
        float* pooled = pooled_.get(static_cast<size_t>(count) * width);
        std::memset(pooled, 0, sizeof(float) * count * width);
        for (int text = 0; text < count; ++text) {
            float* to = pooled + static_cast<size_t>(text) * width;
            if (single)
                std::memcpy(to, x_.data() + (chosen ? text : single[text]) * width, sizeof(float) * width);
            else
                for (int row = 0; row < rows; ++row)
                    if (const float weight = weights[static_cast<size_t>(text) * stride + row])
                        for (int i = 0; i < width; ++i)
                            to[i] += weight * x_.data()[static_cast<size_t>(row) * width + i];
        }
        Buffer<float>*now = &pooled_, *next = &spare_;
        for (const Step& step : steps_) {
            float* from = now->data();
            if (step.kind == 0) {
                in_.resize(count, width);
                for (int text = 0; text < count; ++text) in_.set(text, from + static_cast<size_t>(text) * width);
                float* to = next->get(static_cast<size_t>(count) * step.linear.outputs);
                linear(team_, file_, step.linear, in_, {to, step.linear.outputs, step.activation});
                width = step.linear.outputs;
                std::swap(now, next);
                continue;
            }
            for (int text = 0; text < count; ++text) {
                float* row = from + static_cast<size_t>(text) * width;
                if (step.kind == 1)
                    normalise(row, width, at(step.norm.weight), at(step.norm.bias), step.eps, false, row);
                else
                    unit(row, width);
            }
        }
        std::memcpy(vectors, now->data(), sizeof(float) * count * width);
    }

    static void unit(float* row, int width) {
        double sum = 0;
        for (int i = 0; i < width; ++i) sum += static_cast<double>(row[i]) * row[i];
        const float factor = static_cast<float>(1 / std::fmax(std::sqrt(sum), 1e-12));
        for (int i = 0; i < width; ++i) row[i] *= factor;
    }

    const char* file_;
    const Model model_;
    const std::vector<Layer> layers_;
    const std::vector<Step> steps_;
    Team team_;
    std::vector<Desk> desks_;
    std::vector<Buffer<float>> spare_desks_;
    Rows in_, inner_;
    Buffer<float> x_, aside_, qkv_, context_, pooled_, spare_;
};

}  // namespace mar

extern "C" {

// Sizes of the structures, so that the caller knows that its own are the same.
void mar_native_sizes(int32_t* sizes) {
    sizes[0] = sizeof(mar::Model);
    sizes[1] = sizeof(mar::Layer);
    sizes[2] = sizeof(mar::Step);
}

// An encoder that reads its weights from `file`, 64-byte aligned, as long as it lives; null without memory or threads.
void* mar_native_open(const char* file, const mar::Model* model, const mar::Layer* layers, const mar::Step* steps,
                      int32_t threads) {
    try {
        return new mar::Encoder(file, *model, layers, steps, threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}

void mar_native_close(void* encoder) { delete static_cast<mar::Encoder*>(encoder); }

// See Encoder::run; 0 if there was enough memory.
int32_t mar_native_run(void* encoder, const float* embeddings, const int64_t* positions, const int32_t* starts,
                       int32_t rows, int32_t texts, const int64_t* single, const float* weights, int32_t stride,
                       int32_t count, float* vectors) {
    try {
        static_cast<mar::Encoder*>(encoder)->run(embeddings, positions, starts, rows, texts, single, weights, stride,
                                                 count, vectors);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}
}
