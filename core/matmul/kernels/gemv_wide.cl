// Vector times matrix for GPUs, out[i] = sum over p of mat[i, p] * vec[p], mat contiguous along i.
//
// A work-item keeps PIECE neighbouring results, which it reads 16 bytes at a time; PLANES planes of LANES work-items
// take every PLANES-th p, UNROLL of them in flight, and add up through local memory.
//
// Every line of mat starts at a multiple of 16 bytes, and its length is a multiple of PIECE.
// Defined by the build: IN_F32, IN_F16 or IN_BF16; STREAMED LANES PLANES UNROLL.

__kernel __attribute__((reqd_work_group_size(LANES * PLANES, 1, 1)))
void gemv(__global const elem_t *mat, __global const elem_t *vec, __global elem_t *out,
          long mat_at, long mat_i, long mat_p, long mat_outer, long mat_inner, long vec_at, long vec_p,
          long vec_outer, long vec_inner, long out_at, long out_i, long out_outer, long out_inner,
          int results, int k, int inner_extent)
{
    int lane = get_local_id(0) % LANES, plane = get_local_id(0) / LANES;
    FIND_PRODUCT

    __local float sums[PLANES][LANES * PIECE];
    int first = (get_group_id(0) * LANES + lane) * PIECE;
    float acc[PIECE];
    #pragma unroll
    for (uint e = 0; e < PIECE; e++) acc[e] = 0;
    if (first < results) {
        __global const elem_t *column = mat + first;
        int p = plane;
        for (; p + (UNROLL - 1) * PLANES < k; p += UNROLL * PLANES) {
            uint4 pieces[UNROLL];
            float x[UNROLL];
            #pragma unroll
            for (uint u = 0; u < UNROLL; u++) pieces[u] = piece_at(column + (p + (int)u * PLANES) * mat_p);
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
            widen(piece_at(column + p * mat_p), v);
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) acc[e] = fma(v[e], x, acc[e]);
        }
    }
    #pragma unroll
    for (uint e = 0; e < PIECE; e++) sums[plane][lane * PIECE + e] = acc[e];
    for (int half_ = PLANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (plane < half_)
            #pragma unroll
            for (uint e = 0; e < PIECE; e++) sums[plane][lane * PIECE + e] += sums[plane + half_][lane * PIECE + e];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    int i = get_group_id(0) * LANES * PIECE + get_local_id(0);
    if (get_local_id(0) < LANES * PIECE && i < results) store(out + i * out_i, sums[0][get_local_id(0)]);
}
