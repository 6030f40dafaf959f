// Matrix times vector for GPUs, out[i] = sum over p of mat[i, p] * vec[p], mat and vec contiguous along p.
//
//        p ->   lane 0 | lane 1 | ... | lane 0 | ...     A plane of LANES work-items walks EACH rows side by side,
//     i  EACH rows of plane 0                            UNROLL pieces of PIECE elements of each row in flight, and
//        EACH rows of plane 1                            adds up through local memory. Groups are short, so that
//        ...                                             the device ends its last ones at about the same time.
//
// Every line of mat starts at a multiple of 16 bytes, and its length is a multiple of PIECE.
// Defined by the build: IN_F32, IN_F16 or IN_BF16; STREAMED LANES PLANES UNROLL EACH. LANES is a power of two.

#define NEIGHBOURS (LANES < 32 ? LANES : 32)
#define BLOCKS (LANES / NEIGHBOURS)

#if STREAMED
static inline float of_neighbour(float x, uint apart)
{
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(y) : "f"(x), "r"(apart));
    return y;
}
#endif

__kernel __attribute__((reqd_work_group_size(LANES * PLANES, 1, 1)))
void gemv(__global const elem_t *mat, __global const elem_t *vec, __global elem_t *out,
          long mat_at, long mat_i, long mat_p, long mat_outer, long mat_inner, long vec_at, long vec_p,
          long vec_outer, long vec_inner, long out_at, long out_i, long out_outer, long out_inner,
          int results, int k, int inner_extent)
{
#if STREAMED
    __local float sums[PLANES * EACH][BLOCKS];
#define SUM_AT(row, block) sums[row][block]
#else
    __local float sums[PLANES * EACH][LANES];
#define SUM_AT(row, block) sums[row][(block) * NEIGHBOURS]
#endif
    int item = get_local_id(0), lane = item % LANES, plane = item / LANES;
    FIND_PRODUCT

    int group_first = get_group_id(0) * (PLANES * EACH), first = group_first + plane * EACH;
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
            for (int u = 0; u < UNROLL; u++) pieces[i][u] = piece_at(rows[i] + p + u * LANES * PIECE);
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float x[PIECE];
            widen(*(__global const uint4 *)(vec + p + u * LANES * PIECE), x);
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
        widen(*(__global const uint4 *)(vec + p), x);
        #pragma unroll
        for (int i = 0; i < EACH; i++) {
            float v[PIECE];
            widen(piece_at(rows[i] + p), v);
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) acc[i] = fma(v[e], x[e], acc[i]);
        }
    }
    // First the sums of up to 32 neighbours, which on NVIDIA devices are in one warp, then of all of a plane.
#if STREAMED
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
        #pragma unroll
        for (int apart = NEIGHBOURS / 2; apart > 0; apart /= 2) acc[i] += of_neighbour(acc[i], apart);
        if (lane % NEIGHBOURS == 0) SUM_AT(plane * EACH + i, lane / NEIGHBOURS) = acc[i];
    }
#else
    #pragma unroll
    for (int i = 0; i < EACH; i++) sums[plane * EACH + i][lane] = acc[i];
    for (int apart = NEIGHBOURS / 2; apart > 0; apart /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane % NEIGHBOURS < apart)
            #pragma unroll
            for (int i = 0; i < EACH; i++) sums[plane * EACH + i][lane] += sums[plane * EACH + i][lane + apart];
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int row = item; row < PLANES * EACH; row += LANES * PLANES) {
        float total = 0;
        #pragma unroll
        for (int block = 0; block < BLOCKS; block++) total += SUM_AT(row, block);
        if (group_first + row < results) store(out + (group_first + row) * out_i, total);
    }
}
