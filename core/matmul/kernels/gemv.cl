/* Matrix times vector, out[i] = sum over p of mat[i, p] * vec[p], for either side of a product:
 * mat is lhs (n = 1) or the transposed rhs (m = 1), so both storage orders occur.
 *
 *   MAT_P_1   mat is contiguous along p (the summed axis)        MAT_I_1   along i (the results)
 *   LANES     work-items side by side      PLANES   groups of lanes stacked in a work-group
 *   EACH      results (parallel) or vectors of VW results (perpendicular) a work-item keeps
 *   each      perpendicular with more than 8: how many of the EACH are in use
 *   STAGES    perpendicular only: how many stages of STAGE elements of vec go through local memory (0, 1, 2)
 */
#define GEMV_ARGS                                                                                      \
    __global const in_t *restrict mat, __global const in_t *restrict vec, __global out_t *restrict out, \
        long mat_at, long mat_i_arg, long mat_p_arg, long mat_outer, long mat_inner, long vec_at,       \
        long vec_p, long vec_outer, long vec_inner, long out_at, long out_i, long out_outer,            \
        long out_inner, int results, int k, int inner_extent

#ifdef MAT_P_1
#define mat_p 1L
#else
#define mat_p mat_p_arg
#endif
#ifdef MAT_I_1
#define mat_i 1L
#else
#define mat_i mat_i_arg
#endif

#define SELECT_GEMV(index)                                                    \
    do {                                                                      \
        long outer_ = (index) / inner_extent, inner_ = (index) % inner_extent; \
        mat += mat_at + outer_ * mat_outer + inner_ * mat_inner;              \
        vec += vec_at + outer_ * vec_outer + inner_ * vec_inner;              \
        out += out_at + outer_ * out_outer + inner_ * out_inner;              \
    } while (0)

#ifdef PARALLEL
/* The lanes of a plane walk the summed axis side by side, VW elements each, and add up at the end.
 *
 *      p ->   lane 0 | lane 1 | ... | lane 0 | lane 1 | ...
 *   i  EACH rows of one plane, sharing what was read of vec
 */
#ifdef MAT_P_1
#define READ_MAT(i, p) LOADV(rows[i], p)
#else
#define READ_MAT(i, p) LOAD(rows[i], (p) * mat_p)
#endif

#if VW == 1
#define TOTAL(v) (v)
#elif VW == 2
#define TOTAL(v) ((v).lo + (v).hi)
#elif VW == 4
#define TOTAL(v) ((v).s0 + (v).s1 + ((v).s2 + (v).s3))
#elif VW == 8
#define TOTAL4(v) ((v).s0 + (v).s1 + ((v).s2 + (v).s3))
#define TOTAL(v) TOTAL4((v).lo + (v).hi)
#else
#define TOTAL4(v) ((v).s0 + (v).s1 + ((v).s2 + (v).s3))
#define TOTAL8(v) TOTAL4((v).lo + (v).hi)
#define TOTAL(v) TOTAL8((v).lo + (v).hi)
#endif

__attribute__((reqd_work_group_size(LANES, PLANES, 1)))
__kernel void gemv_parallel(GEMV_ARGS)
{
    int lane = get_local_id(0), plane = get_local_id(1);
    int first = (get_group_id(1) * PLANES + plane) * EACH;
    SELECT_GEMV(get_group_id(2));
    __global const in_t *rows[EACH];
    acc_v sum[EACH];
    acc_t total[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        rows[i] = mat + min(first + i, results - 1) * mat_i;
        sum[i] = 0;
    }
    int p = lane * VW;
    for (; p + VW <= k; p += LANES * VW) {
#ifdef VEC_1
        acc_v x = LOADV(vec, p);
#else
        acc_v x;
        acc_t xs[VW];
#pragma unroll
        for (int v = 0; v < VW; v++)
            xs[v] = LOAD(vec, (p + v) * vec_p);
        x = LOAD_ACCV(xs, 0);
#endif
#pragma unroll
        for (int i = 0; i < EACH; i++)
            sum[i] += READ_MAT(i, p) * x;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        total[i] = TOTAL(sum[i]);
    for (; p < k; p++) { /* the one lane that holds the last, incomplete vector */
        acc_t x = LOAD(vec, p * vec_p);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            total[i] += LOAD(rows[i], p * mat_p) * x;
    }
#if LANES > 1
    __local acc_t shared[PLANES][EACH][LANES];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        shared[plane][i][lane] = total[i];
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                shared[plane][i][lane] += shared[plane][i][lane + half_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lane; i < EACH; i += LANES)
        if (first + i < results)
            STORE(shared[plane][i][0], out, (first + i) * out_i);
#else
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (first + i < results)
            STORE(total[i], out, (first + i) * out_i);
#endif
}

#else
/* A work-item owns results and walks the summed axis alone, in step with its neighbours.
 *
 *      i ->   lane 0 | lane 1 | ...           each lane EACH vectors of VW results, LANES*VW apart
 *   p  planes take every PLANES-th stretch of STEP elements, and add up at the end
 */
#ifdef MAT_I_1
#define READ_MAT(c, p) LOADV(mat, (p) * mat_p + (c))
#else
#define READ_MAT(c, p) LOAD(mat, (p) * mat_p + (c) * mat_i)
#endif
#define SPAN (LANES * VW)

#if STAGES > 0
#define X_AT(p, s) staged[stage][(p) - stage_begin + (s)]
#else
#define X_AT(p, s) LOAD(vec, ((p) + (s)) * vec_p)
#endif

/* A loop over few is unrolled, so that its sums stay in registers. */
#if EACH > 8
#define KEPT each
#else
#define KEPT EACH
#endif

__attribute__((reqd_work_group_size(LANES, PLANES, 1)))
__kernel void gemv_perpendicular(GEMV_ARGS, int each)
{
    int lane = get_local_id(0), plane = get_local_id(1);
    int first = get_group_id(0) * (SPAN * KEPT) + lane * VW;
    SELECT_GEMV(get_group_id(2));
    acc_v sum[EACH];
    int column[EACH]; /* clamped so that the last vector overlaps its neighbour instead of leaving the matrix */
#if EACH <= 8
#pragma unroll
#endif
    for (int j = 0; j < KEPT; j++) {
        sum[j] = 0;
        column[j] = min(first + j * SPAN, results - VW);
    }
#if STAGES > 0
    __local acc_t staged[STAGES][STAGE];
    int item = plane * LANES + lane, stage = 0;
#if STAGES == 2
    for (int p = item; p < min(STAGE, k); p += LANES * PLANES)
        staged[0][p] = LOAD(vec, p * vec_p);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int stage_begin = 0; stage_begin < k; stage_begin += STAGE) {
        int stage_end = min(stage_begin + STAGE, k);
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int p = stage_begin + item; p < stage_end; p += LANES * PLANES)
            staged[0][p - stage_begin] = LOAD(vec, p * vec_p);
        barrier(CLK_LOCAL_MEM_FENCE);
#else
        int next_end = min(stage_end + STAGE, k);
        for (int p = stage_end + item; p < next_end; p += LANES * PLANES)
            staged[stage ^ 1][p - stage_end] = LOAD(vec, p * vec_p);
#endif
#else
    {
        int stage_begin = 0, stage_end = k;
#endif
        int p = stage_begin + plane * STEP;
        for (; p + STEP <= stage_end; p += PLANES * STEP) {
            acc_t x[STEP];
#pragma unroll
            for (int s = 0; s < STEP; s++)
                x[s] = X_AT(p, s);
#if EACH <= 8
#pragma unroll
#endif
            for (int j = 0; j < KEPT; j++) {
                acc_v part = sum[j];
#pragma unroll
                for (int s = 0; s < STEP; s++)
                    part += READ_MAT(column[j], p + s) * x[s];
                sum[j] = part;
            }
        }
        for (; p < stage_end; p++) { /* the one plane that holds the last, incomplete stretch */
            acc_t x = X_AT(p, 0);
            for (int j = 0; j < KEPT; j++)
                sum[j] += READ_MAT(column[j], p) * x;
        }
#if STAGES == 2
        barrier(CLK_LOCAL_MEM_FENCE);
        stage ^= 1;
#endif
    }
#if PLANES > 1
    __local acc_v shared[PLANES][EACH][LANES];
    for (int j = 0; j < KEPT; j++)
        shared[plane][j][lane] = sum[j];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (plane > 0)
        return;
    for (int other = 1; other < PLANES; other++)
        for (int j = 0; j < KEPT; j++)
            sum[j] += shared[other][j][lane];
#endif
    for (int j = 0; j < KEPT; j++) {
        if (first + j * SPAN >= results)
            break;
#if VW == 1
        STORE(sum[j], out, column[j] * out_i);
#elif defined(OUT_1)
        STOREV(sum[j], out, column[j]);
#else
        acc_t each[VW];
        STORE_ACCV(sum[j], each, 0);
        for (int v = 0; v < VW; v++)
            STORE(each[v], out, (column[j] + v) * out_i);
#endif
    }
}
#endif
