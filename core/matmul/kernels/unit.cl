/* Register tile a work-item, operands staged through local memory.
 *
 *              BK                 BN = TX*TN                    BN
 *           +------+           +------------+             +------------+
 *   BM =    |  lhs |   x   BK  |    rhs     |      ->  BM | TM x TN of |
 *   TY*TM   | stage|           |   stage    |             | each item  |
 *           +------+           +------------+             +------------+
 *
 *   TX, TY   work-items along n and along m          TM, TN   rows and columns of a work-item
 *   BK       depth of a stage                        STAGES   1, or 2: the next stage is read from global
 *                                                    memory while this one is multiplied
 *   SPLIT    1: the k axis is cut in slices of `depth`, and slice s of product b writes its partial sums
 *            to parts[b * slices + s][m][n] for reduce.cl to add up
 *
 * A work-item's rows are ty + TY*i and its columns tx + TX*j: local reads of neighbours are
 * consecutive and stores coalesce. Stages hold accumulator-typed values, lhs transposed (k outermost),
 * rows padded by one to keep the transposing writes off one bank. Elements past an edge are zero.
 */
#define BM (TY * TM)
#define BN (TX * TN)
#define THREADS (TX * TY)
#define LHS_EACH ((BM * BK + THREADS - 1) / THREADS)
#define RHS_EACH ((BN * BK + THREADS - 1) / THREADS)
#define PAD 1

/* Which element of its stage a work-item reads: consecutive work-items follow the contiguous axis. */
#ifdef LHS_COL_1
#define LHS_M(e) ((e) / BK)
#define LHS_K(e) ((e) % BK)
#else
#define LHS_M(e) ((e) % BM)
#define LHS_K(e) ((e) / BM)
#endif
#ifdef RHS_ROW_1
#define RHS_N(e) ((e) / BK)
#define RHS_K(e) ((e) % BK)
#else
#define RHS_N(e) ((e) % BN)
#define RHS_K(e) ((e) / BN)
#endif

#define FETCH(p0)                                                                                       \
    _Pragma("unroll") for (int t = 0; t < LHS_EACH; t++)                                                \
    {                                                                                                   \
        int e = item + t * THREADS, row = row0 + LHS_M(e), p = (p0) + LHS_K(e);                         \
        lhs_next[t] = e < BM * BK && row < m && p < k_end ? LOAD(lhs, row * lhs_row + p * lhs_col) : (acc_t)0; \
    }                                                                                                   \
    _Pragma("unroll") for (int t = 0; t < RHS_EACH; t++)                                                \
    {                                                                                                   \
        int e = item + t * THREADS, col = col0 + RHS_N(e), p = (p0) + RHS_K(e);                         \
        rhs_next[t] = e < BN * BK && col < n && p < k_end ? LOAD(rhs, p * rhs_row + col * rhs_col) : (acc_t)0; \
    }

#define PUT(stage)                                                                                      \
    _Pragma("unroll") for (int t = 0; t < LHS_EACH; t++)                                                \
    {                                                                                                   \
        int e = item + t * THREADS;                                                                     \
        if (e < BM * BK)                                                                                \
            lhs_stage[stage][LHS_K(e)][LHS_M(e)] = lhs_next[t];                                         \
    }                                                                                                   \
    _Pragma("unroll") for (int t = 0; t < RHS_EACH; t++)                                                \
    {                                                                                                   \
        int e = item + t * THREADS;                                                                     \
        if (e < BN * BK)                                                                                \
            rhs_stage[stage][RHS_K(e)][RHS_N(e)] = rhs_next[t];                                         \
    }

#define MULTIPLY(stage)                                                                                 \
    _Pragma("unroll") for (int p = 0; p < BK; p++)                                                      \
    {                                                                                                   \
        acc_t x[TM], y[TN];                                                                             \
        _Pragma("unroll") for (int i = 0; i < TM; i++) x[i] = lhs_stage[stage][p][ty + i * TY];         \
        _Pragma("unroll") for (int j = 0; j < TN; j++) y[j] = rhs_stage[stage][p][tx + j * TX];         \
        _Pragma("unroll") for (int i = 0; i < TM; i++)                                                  \
            _Pragma("unroll") for (int j = 0; j < TN; j++) acc[i][j] += x[i] * y[j];                    \
    }

#if SPLIT
#define PRODUCT (get_group_id(2) / slices)
#else
#define PRODUCT get_group_id(2)
#endif

__attribute__((reqd_work_group_size(TX, TY, 1)))
__kernel void unit(PROBLEM_ARGS
#if SPLIT
                   , __global acc_t *restrict parts, int depth, int slices
#endif
)
{
    __local acc_t lhs_stage[STAGES][BK][BM + PAD];
    __local acc_t rhs_stage[STAGES][BK][BN + PAD];
    int tx = get_local_id(0), ty = get_local_id(1), item = ty * TX + tx;
    int row0 = get_group_id(1) * BM, col0 = get_group_id(0) * BN;
#if SPLIT
    int k_begin = (get_group_id(2) % slices) * depth, k_end = min(k, k_begin + depth);
#else
    int k_begin = 0, k_end = k;
#endif
    SELECT_PRODUCT(PRODUCT);

    acc_t acc[TM][TN];
    acc_t lhs_next[LHS_EACH], rhs_next[RHS_EACH];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;

#if STAGES == 1
    for (int p0 = k_begin; p0 < k_end; p0 += BK) {
        FETCH(p0)
        barrier(CLK_LOCAL_MEM_FENCE);
        PUT(0)
        barrier(CLK_LOCAL_MEM_FENCE);
        MULTIPLY(0)
    }
#else
    int stage = 0;
    FETCH(k_begin)
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p0 = k_begin; p0 < k_end; p0 += BK) {
        FETCH(p0 + BK)
        MULTIPLY(stage)
        stage ^= 1;
        PUT(stage)
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#endif

#if SPLIT
    parts += (long)get_group_id(2) * m * n;
#endif
#pragma unroll
    for (int i = 0; i < TM; i++) {
        int row = row0 + ty + i * TY;
#pragma unroll
        for (int j = 0; j < TN; j++) {
            int col = col0 + tx + j * TX;
            if (row < m && col < n) {
#if SPLIT
                parts[(long)row * n + col] = acc[i][j];
#else
                STORE(acc[i][j], out, row * out_row + col);
#endif
            }
        }
    }
}
