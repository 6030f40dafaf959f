// Vector times a large matrix, for NVIDIA devices from compute capability 8.0: out[i] = sum over p of
// mat[i, p] * vec[p], mat contiguous along i.
//
//        i ->  strip 0 | strip 1 | ...        A work-group takes WIDTH results (a strip) and `rounds` rounds of p (a
//     p  +---------+---------+                chunk). In a round each of its PLANES warps reads UNROLL lines of mat,
//        | chunk 0 | chunk 0 |                16 bytes a work-item, all in flight at once, and keeps PIECE sums.
//        +---------+---------+                Groups are short and many: a device that gets them one by one ends the
//        | chunk 1 | chunk 1 |                last ones at about the same time.
//
// A group leaves the sums of its chunk in `parts`; of the groups of a strip the one that comes last, by the counter
// in `arrived`, adds them up, in the order of the chunks. Counters are 0 before and after.
//
// Every line of mat starts at a multiple of 16 bytes, and its length is a multiple of PIECE.
// Defined by the build: IN_F32, IN_F16 or IN_BF16; STREAMED PLANES UNROLL. STAGED: how many elements of vec a group
// has in local memory, no fewer than its chunk; with 0 a warp's lanes hold a round of it, and hand them round.

#define LANES 32
#define WIDTH (LANES * PIECE)
#define THREADS (LANES * PLANES)
#define ROUND (PLANES * UNROLL)
#define QUADS (WIDTH / 4)
#define SHARES (THREADS / QUADS)

static inline float of_lane(float x, uint lane)
{
    float y;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(y) : "f"(x), "r"(lane));
    return y;
}

static inline void see_other_groups(void) { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }

// Not from the first-level cache, which knows nothing of what other groups wrote.
static inline float4 fresh(__global const float *from)
{
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    return v;
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void gemv(__global const elem_t *mat, __global const elem_t *vec, __global elem_t *out,
          long mat_at, long mat_i, long mat_p, long mat_outer, long mat_inner, long vec_at, long vec_p,
          long vec_outer, long vec_inner, long out_at, long out_i, long out_outer, long out_inner,
          int results, int k, int inner_extent, __global float *parts, __global uint *arrived, int rounds)
{
    __local float sums[PLANES][WIDTH] __attribute__((aligned(16)));
    __local uint is_last;
    int thread = get_local_id(0), lane = thread % LANES, plane = thread / LANES;
    int strip = get_group_id(0), chunk = get_group_id(2), chunks = get_num_groups(2);
    FIND_PRODUCT

    // Lanes beyond the last result read what their neighbours read; nobody stores their sums.
    __global const elem_t *column = mat + min((strip * LANES + lane) * PIECE, results - PIECE);
    int begin = chunk * rounds * ROUND, end = min(k, begin + rounds * ROUND);
#if STAGED
    __local float staged[STAGED];
    for (int i = thread; i < STAGED; i += THREADS) staged[i] = begin + i < end ? one(vec + (begin + i) * vec_p) : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    float acc[PIECE];
    #pragma unroll
    for (int e = 0; e < PIECE; e++) acc[e] = 0;
    for (int first = begin; first < end; first += ROUND) {
        int p = first + plane * UNROLL;
        uint4 pieces[UNROLL];
        if (first + ROUND <= end) {
            #pragma unroll
            for (int u = 0; u < UNROLL; u++) pieces[u] = piece_at(column + (p + u) * mat_p);
        } else {
            #pragma unroll
            for (int u = 0; u < UNROLL; u++) pieces[u] = p + u < end ? piece_at(column + (p + u) * mat_p) : (uint4)0;
        }
#if STAGED
#define ELEMENT(u) staged[p + (u) - begin]
#else
        float xs = lane < UNROLL && p + lane < end ? one(vec + (p + lane) * vec_p) : 0;
#define ELEMENT(u) of_lane(xs, u)
#endif
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float v[PIECE], x = ELEMENT(u);
            widen(pieces[u], v);
            #pragma unroll
            for (int e = 0; e < PIECE; e++) acc[e] = fma(v[e], x, acc[e]);
        }
    }
    #pragma unroll
    for (int e = 0; e < PIECE; e += 4)
        *(__local float4 *)&sums[plane][lane * PIECE + e] = (float4)(acc[e], acc[e + 1], acc[e + 2], acc[e + 3]);
    barrier(CLK_LOCAL_MEM_FENCE);

    uint place = get_group_id(1) * get_num_groups(0) + strip;
    parts += (ulong)place * chunks * WIDTH;
    for (int q = thread; q < QUADS; q += THREADS) {
        float4 sum = 0;
        #pragma unroll
        for (int plane_ = 0; plane_ < PLANES; plane_++) sum += *(__local float4 *)&sums[plane_][4 * q];
        *(__global float4 *)(parts + chunk * WIDTH + 4 * q) = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (thread == 0) {
        see_other_groups();
        is_last = atomic_inc(&arrived[place]) == chunks - 1;
        if (is_last) {
            arrived[place] = 0;
            see_other_groups();
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (!is_last) return;

    int quad = thread % QUADS, share = thread / QUADS;
    float4 sum = 0;
    #pragma unroll 8
    for (int c = share; c < chunks; c += SHARES) sum += fresh(parts + c * WIDTH + 4 * quad);
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
