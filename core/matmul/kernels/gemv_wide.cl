// Matrix times vector for GPUs, out[i] = sum over p of mat[i, p] * vec[p], 16 bytes of the matrix at a time.
//
// ALONG_RESULTS: mat is contiguous along i. A work-item keeps PIECE neighbouring results; PLANES planes of LANES
//   work-items take every PLANES-th p, UNROLL of them in flight, and add up through local memory.
//   With CHUNK above 0 (NVIDIA only) a work-group takes CHUNK of p, with that piece of vec in local memory, and leaves
//   its sums in `parts`; of the groups with the same results the one that comes last, by the counters in `arrived`,
//   adds theirs up. Counters are 0 before and after. CHUNK is a multiple of UNROLL * PLANES.
// Otherwise mat and vec are contiguous along p. The 32 lanes of a plane share EACH results and add up likewise.
//
// Every line of mat starts at a multiple of 16 bytes, and its length is a multiple of PIECE.
// Defined by the build: IN_F32, IN_F16 or IN_BF16; ALONG_RESULTS LANES PLANES UNROLL EACH CHUNK.

#define LOAD_PIECE(p) (*(__global const uint4 *)(p))

#if CHUNK
// Results of a group in quads; SHARES of its work-items add up one quad.
#define QUADS (LANES * PIECE / 4)
#define SHARES (LANES * PLANES / QUADS)
#define LOAD_PIECES(p)                                                                                       \
    _Pragma("unroll") for (uint u = 0; u < UNROLL; u++)                                                      \
        pieces[u] = (p) + (int)(u * PLANES) < count ? LOAD_PIECE(column + ((p) + (int)(u * PLANES)) * mat_p) : (uint4)0
static inline void see_other_groups(void) { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }
static inline float4 fresh_quad(__global const float *p)
{
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
#define CHUNK_ARGUMENTS , __global float *parts, __global uint *arrived, uint chunks
#else
#define CHUNK_ARGUMENTS
#endif

__kernel __attribute__((reqd_work_group_size(LANES * PLANES, 1, 1)))
void gemv(__global const elem_t *mat, __global const elem_t *vec, __global elem_t *out,
          long mat_at, long mat_i, long mat_p, long mat_outer, long mat_inner, long vec_at, long vec_p,
          long vec_outer, long vec_inner, long out_at, long out_i, long out_outer, long out_inner,
          int results, int k, int inner_extent CHUNK_ARGUMENTS)
{
    int lane = get_local_id(0) % LANES, plane = get_local_id(0) / LANES;
    long outer = get_group_id(1) / inner_extent, inner = get_group_id(1) % inner_extent;
    mat += mat_at + outer * mat_outer + inner * mat_inner;
    vec += vec_at + outer * vec_outer + inner * vec_inner;
    out += out_at + outer * out_outer + inner * out_inner;

#if ALONG_RESULTS
    __local float sums[PLANES][LANES * PIECE] __attribute__((aligned(16)));
    int first = (get_group_id(0) * LANES + lane) * PIECE;
    float acc[PIECE];
    #pragma unroll
    for (uint e = 0; e < PIECE; e++) acc[e] = 0;
#if CHUNK
    __local float staged[CHUNK];
    int from = get_group_id(2) * CHUNK, count = min(k - from, CHUNK);
    __global const elem_t *column = mat + min(first, results - PIECE) + from * mat_p;
    uint4 pieces[UNROLL];
    LOAD_PIECES(plane);
    for (int i = get_local_id(0); i < CHUNK; i += LANES * PLANES) staged[i] = i < count ? one(vec + (from + i) * vec_p) : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p = plane; p < count; p += UNROLL * PLANES) {
        if (p > plane) LOAD_PIECES(p);
        #pragma unroll
        for (uint u = 0; u < UNROLL; u++) {
            float v[PIECE], x = staged[p + u * PLANES];
            widen(pieces[u], v);
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) acc[e] = fma(v[e], x, acc[e]);
        }
    }
#else
    if (first < results) {
        __global const elem_t *column = mat + first;
        int p = plane;
        for (; p + (UNROLL - 1) * PLANES < k; p += UNROLL * PLANES) {
            uint4 pieces[UNROLL];
            float x[UNROLL];
            #pragma unroll
            for (uint u = 0; u < UNROLL; u++) pieces[u] = LOAD_PIECE(column + (p + (int)u * PLANES) * mat_p);
            #pragma unroll
            for (uint u = 0; u < UNROLL; u++) x[u] = one(vec + (p + (int)u * PLANES) * vec_p);
            #pragma unroll
            for (uint u = 0; u < UNROLL; u++) {
                float v[PIECE];
                widen(pieces[u], v);
                #pragma unroll
                for (uint e = 0; e < PIECE; e++) acc[e] = fma(v[e], x[u], acc[e]);
            }
        }
        for (; p < k; p += PLANES) {
            float v[PIECE], x = one(vec + p * vec_p);
            widen(LOAD_PIECE(column + p * mat_p), v);
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) acc[e] = fma(v[e], x, acc[e]);
        }
    }
#endif
    #pragma unroll
    for (uint e = 0; e < PIECE; e++) sums[plane][lane * PIECE + e] = acc[e];
    for (int half_ = PLANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (plane < half_)
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) sums[plane][lane * PIECE + e] += sums[plane + half_][lane * PIECE + e];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if CHUNK
    __local uint is_last;
    uint thread = get_local_id(0), place = get_group_id(1) * get_num_groups(0) + get_group_id(0);
    parts += (ulong)place * chunks * (LANES * PIECE);
    __global float *mine = parts + get_group_id(2) * (LANES * PIECE);
    for (uint c = thread; c < LANES * PIECE; c += LANES * PLANES) mine[c] = sums[0][c];
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (thread == 0) {
        see_other_groups();
        is_last = atomic_inc(&arrived[place]) == chunks - 1;
        see_other_groups();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (!is_last) return;
    uint quad = thread % QUADS, share = thread / QUADS;
    float4 sum = 0;
    #pragma unroll 8
    for (uint c = share; c < chunks; c += SHARES) sum += fresh_quad(parts + c * (LANES * PIECE) + 4 * quad);
    *(__local float4 *)&sums[share][4 * quad] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread == 0) arrived[place] = 0;
    for (uint c = thread; c < LANES * PIECE; c += LANES * PLANES) {
        float total = 0;
        #pragma unroll
        for (uint q = 0; q < SHARES; q++) total += sums[q][c];
        uint i = get_group_id(0) * LANES * PIECE + c;
        if (i < results) store(out + i * out_i, total);
    }
    return;
#endif
    int i = get_group_id(0) * LANES * PIECE + get_local_id(0);
    if (get_local_id(0) < LANES * PIECE && i < results) store(out + i * out_i, sums[0][get_local_id(0)]);
#else
    __local float sums[PLANES][EACH][LANES];
    int first = (get_group_id(0) * PLANES + plane) * EACH;
    __global const elem_t *rows[EACH];
    float acc[EACH];
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
        rows[i] = mat + min(first + i, results - 1) * mat_i;
        acc[i] = 0;
    }
    int p = lane * PIECE;
    for (; p + (UNROLL - 1) * LANES * PIECE < k; p += UNROLL * LANES * PIECE) {
        uint4 pieces[EACH][UNROLL];
        #pragma unroll
        for (int i = 0; i < EACH; i++)
            #pragma unroll
            for (int u = 0; u < UNROLL; u++) pieces[i][u] = LOAD_PIECE(rows[i] + p + u * LANES * PIECE);
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float x[PIECE];
            widen(LOAD_PIECE(vec + p + u * LANES * PIECE), x);
            #pragma unroll
            for (int i = 0; i < EACH; i++) {
                float v[PIECE];
                widen(pieces[i][u], v);
                #pragma unroll
                for (uint e = 0; e < PIECE; e++) acc[i] = fma(v[e], x[e], acc[i]);
            }
        }
    }
    for (; p < k; p += LANES * PIECE) {
        float x[PIECE];
        widen(LOAD_PIECE(vec + p), x);
        #pragma unroll
        for (int i = 0; i < EACH; i++) {
            float v[PIECE];
            widen(LOAD_PIECE(rows[i] + p), v);
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) acc[i] = fma(v[e], x[e], acc[i]);
        }
    }
    #pragma unroll
    for (int i = 0; i < EACH; i++) sums[plane][i][lane] = acc[i];
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_)
            #pragma unroll
            for (int i = 0; i < EACH; i++) sums[plane][i][lane] += sums[plane][i][lane + half_];
    }
    if (lane == 0)
        #pragma unroll
        for (int i = 0; i < EACH; i++)
            if (first + i < results) store(out + (first + i) * out_i, sums[plane][i][0]);
#endif
}
