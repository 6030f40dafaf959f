// Vector times a large matrix, for NVIDIA devices from compute capability 8.0: out[i] = sum over p of
// mat[i, p] * vec[p], mat contiguous along i.
//
//        i ->  strip 0 | strip 1 | ...        A work-group takes WIDTH results (a strip) and every chunks-th round of p.
//     p  +---------+---------+                In a round each of its PLANES planes of LANES work-items reads UNROLL
//        | chunk 0 | chunk 0 |  ROUND lines   lines of mat, 16 bytes a work-item, all in flight at once, and keeps
//        +---------+---------+                PIECE sums. All groups together walk mat from its beginning to its end.
//        | chunk 1 | chunk 1 |
//        +---------+---------+
//        | chunk 0 |  ...
//
// A group leaves the sums of its chunk in `parts`, and the group of a strip that began last, by the counter in
// `begun`, adds them up, in the order of the chunks. It waits for each until it is there: those it waits for are
// running, so they come. Nobody waits for a fence, or for a counter behind one: a sum is its own sign that it is there,
// as parts are 0 until then, and a sum of 0 is left as -0, which adds the same. All are 0 again afterwards.
//
// Every line of mat starts at a multiple of 16 bytes, and its length is a multiple of PIECE.
// Defined by the build: IN_F32, IN_F16 or IN_BF16; STREAMED LANES PLANES UNROLL. STAGED: how many elements of vec a group
// has in local memory, no fewer than its chunk; with 0 a plane's lanes hold a round of it, and hand them round.

#define WARP 32
#define WIDTH (LANES * PIECE)
#define THREADS (LANES * PLANES)
#define ROUND (PLANES * UNROLL)
#define QUADS (WIDTH / 4)
#define SHARES (THREADS / QUADS)

static inline float of_lane(float x, uint lane)
{
    float y;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, 0xffffffff;"
                 : "=f"(y) : "f"(x), "r"(lane), "n"((WARP - LANES) << 8 | (WARP - 1)));
    return y;
}

// Past the first-level cache, which knows nothing of other groups. Every number is whole, in no order with others.
static inline void leave(__global float *at, float sum)
{
    uint bits = as_uint(sum);
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(at), "r"(bits ? bits : as_uint(-0.0f)) : "memory");
}

static inline float4 left_at(__global const float *at)
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at) : "memory");
    return v;
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void gemv(__global const elem_t *mat, __global const elem_t *vec, __global elem_t *out,
          long mat_at, long mat_i, long mat_p, long mat_outer, long mat_inner, long vec_at, long vec_p,
          long vec_outer, long vec_inner, long out_at, long out_i, long out_outer, long out_inner,
          int results, int k, int inner_extent, __global float *parts, __global uint *begun)
{
    __local float sums[PLANES][WIDTH] __attribute__((aligned(16)));
    __local uint turn;
    int thread = get_local_id(0), lane = thread % LANES, plane = thread / LANES;
    int strip = get_group_id(0), chunk = get_group_id(2), chunks = get_num_groups(2);
    uint place = get_group_id(1) * get_num_groups(0) + strip;
    FIND_PRODUCT
    if (thread == 0) turn = chunks > 1 ? atomic_inc(&begun[place]) : 0;

    // Lanes beyond the last result read what their neighbours read; nobody stores their sums.
    __global const elem_t *column = mat + min((strip * LANES + lane) * PIECE, results - PIECE);
    uint depth = k, begin = chunk * ROUND, step = chunks * ROUND;
#if STAGED
    __local float staged[STAGED];
    for (int i = thread; i < STAGED; i += THREADS) {
        uint p = begin + i / ROUND * step + i % ROUND;
        staged[i] = p < depth ? one(vec + p * vec_p) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const float *xs = staged + plane * UNROLL;
#endif
    float acc[PIECE];
    #pragma unroll
    for (int e = 0; e < PIECE; e++) acc[e] = 0;
    for (uint first = begin; first < depth; first += step) {
        uint p = first + plane * UNROLL;
        uint4 pieces[UNROLL];
        if (first + ROUND <= depth) {
            #pragma unroll
            for (int u = 0; u < UNROLL; u++) pieces[u] = piece_at(column + (p + u) * mat_p);
        } else {
            #pragma unroll
            for (int u = 0; u < UNROLL; u++) pieces[u] = p + u < depth ? piece_at(column + (p + u) * mat_p) : (uint4)0;
        }
#if STAGED
#define ELEMENT(u) xs[u]
#else
        float xs = lane < UNROLL && p + lane < depth ? one(vec + (p + lane) * vec_p) : 0;
#define ELEMENT(u) of_lane(xs, u)
#endif
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float v[PIECE], x = ELEMENT(u);
            widen(pieces[u], v);
            #pragma unroll
            for (int e = 0; e < PIECE; e++) acc[e] = fma(v[e], x, acc[e]);
        }
#if STAGED
        xs += ROUND;
#endif
    }
    #pragma unroll
    for (int e = 0; e < PIECE; e += 4)
        *(__local float4 *)&sums[plane][lane * PIECE + e] = (float4)(acc[e], acc[e + 1], acc[e + 2], acc[e + 3]);
    barrier(CLK_LOCAL_MEM_FENCE);

    parts += (ulong)place * chunks * WIDTH;
    for (int c = thread; c < WIDTH; c += THREADS) {
        float sum = 0;
        #pragma unroll
        for (int plane_ = 0; plane_ < PLANES; plane_++) sum += sums[plane_][c];
        int i = strip * WIDTH + c;
        if (chunks > 1) leave(parts + chunk * WIDTH + c, sum);
        else if (i < results) store(out + i * out_i, sum);
    }
    if (turn < chunks - 1 || chunks == 1) return;

    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread == 0) begun[place] = 0;
    int quad = thread % QUADS, share = thread / QUADS;
    float4 sum = 0;
    for (int c = share; c < chunks; c += SHARES) {
        __global float *at = parts + c * WIDTH + 4 * quad;
        float4 part;
        do part = left_at(at); while (any(as_uint4(part) == (uint4)(0)));
        sum += part;
        *(__global float4 *)at = 0;
    }
    *(__local float4 *)&sums[share][4 * quad] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int c = thread; c < WIDTH; c += THREADS) {
        float total = 0;
        #pragma unroll
        for (int s = 0; s < SHARES; s++) total += sums[s][c];
        int i = strip * WIDTH + c;
        if (i < results) store(out + i * out_i, total);
    }
}
