// Matrix times vector through the bulk copy engine: out[i] = sum over p of mat[i, p] * vec[p], mat contiguous
// along i.
//
//        64 results             A work-group owns 64 results. One work-item of a warp of its own brings in boxes
//      +------------+           of 64 columns by DEPTH of p, STAGES of them in flight; the others take a piece
//      | mat        | DEPTH     of PIECE results each, of every PLANES-th p, and add up through local memory.
//      | box by box |           So memory is kept busy by a few instructions.
//      +------------+
//
// Defined by the build: IN_F32, IN_F16 or IN_BF16; STAGES, DEPTH.

#define WIDTH 64
#define LANES (WIDTH / PIECE)
#define WORKERS 256
#define PLANES (WORKERS / LANES)
#define STAGE_BYTES (WIDTH * DEPTH * (16 / PIECE))

#define FETCH(x, step)                                                                                       \
    _Pragma("unroll") for (uint u = 0; u < DEPTH / PLANES; u++) {                                            \
        int p = (step) * DEPTH + u * PLANES + plane;                                                         \
        x[u] = p < k ? one(vec + p * vec_p) : 0;                                                             \
    }

// `mat` is a tensor map; its batch factors are 1, or 0 for a matrix shared along that axis.
__kernel __attribute__((reqd_work_group_size(WORKERS + 32, 1, 1)))
void gemv(__global const uchar *mat, uint mat_outer, uint mat_inner,
          __global const elem_t *vec, long vec_at, long vec_p, long vec_outer, long vec_inner,
          __global elem_t *out, long out_at, long out_i, long out_outer, long out_inner,
          int results, int k, int inner_extent)
{
    __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
    __local ulong barriers[2 * STAGES];
    __local float sums[PLANES][WIDTH];
    uint base = shared_address(stages), full = shared_address(barriers), empty = full + 8 * STAGES;
    uint thread = get_local_id(0), outer = get_group_id(1) / inner_extent, inner = get_group_id(1) % inner_extent;
    uint first = get_group_id(0) * WIDTH, steps = (k + DEPTH - 1) / DEPTH;
    vec += vec_at + outer * vec_outer + inner * vec_inner;
    out += out_at + outer * out_outer + inner * out_inner;
    if (thread == WORKERS) {
        prefetch_map(mat);
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, WORKERS / 32);
        }
        barrier_init_done();
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint slot = 0, phase = 0;
    if (thread >= WORKERS) {
        if (thread == WORKERS)
            for (uint step = 0; step < steps; step++) {
                barrier_wait(empty + 8 * slot, phase ^ 1);
                barrier_expect_bytes(full + 8 * slot, STAGE_BYTES);
                copy_box(base + slot * STAGE_BYTES, mat, first, step * DEPTH, inner * mat_inner, outer * mat_outer,
                         full + 8 * slot);
                if (++slot == STAGES) { slot = 0; phase ^= 1; }
            }
    } else {
        uint lane = thread % LANES, plane = thread / LANES;
        float acc[PIECE];
        #pragma unroll
        for (uint e = 0; e < PIECE; e++) acc[e] = 0;
        // The vector's elements are fetched a step ahead: their latency would be longer than a step takes.
        float x[DEPTH / PLANES], next[DEPTH / PLANES];
        FETCH(next, 0);
        for (uint step = 0; step < steps; step++) {
            #pragma unroll
            for (uint u = 0; u < DEPTH / PLANES; u++) x[u] = next[u];
            FETCH(next, step + 1);
            barrier_wait(full + 8 * slot, phase);
            __local const uint4 *rows = (__local const uint4 *)(stages + slot * STAGE_BYTES);
            #pragma unroll
            for (uint u = 0; u < DEPTH / PLANES; u++) {
                float v[PIECE];
                widen(rows[(u * PLANES + plane) * LANES + lane], v);
                #pragma unroll
                for (uint e = 0; e < PIECE; e++) acc[e] = fma(v[e], x[u], acc[e]);
            }
            converge_warp();
            if (thread % 32 == 0) barrier_arrive(empty + 8 * slot);
            if (++slot == STAGES) { slot = 0; phase ^= 1; }
        }
        #pragma unroll
        for (uint e = 0; e < PIECE; e++) sums[plane][lane * PIECE + e] = acc[e];
    }
    for (uint half_ = PLANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = thread; i < half_ * WIDTH; i += WORKERS + 32)
            sums[i / WIDTH][i % WIDTH] += sums[i / WIDTH + half_][i % WIDTH];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread < WIDTH && first + thread < results) store(out + (first + thread) * out_i, sums[0][thread]);
}
