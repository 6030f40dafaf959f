/* Element types, conversions and the arguments every kernel of the plain families shares.
 *
 *   IN, OUT   element types of the operands and of the result: F16, BF16, F32 or F64
 *   VW        width of acc_v, the vector the kernel computes in (1, 2, 4, 8 or 16)
 *   *_ROW_1, *_COL_1   defined where that stride of that operand is known to be 1
 *
 * f16 and bf16 are two bytes in memory and float in registers; nothing here needs cl_khr_fp16.
 */
#define F16 1
#define BF16 2
#define F32 3
#define F64 4

#ifndef VW
#define VW 1
#endif

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#if VW == 1
#define VEC(type) type
#else
#define VEC(type) PASTE(type, VW)
#endif

#if IN == F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double acc_t;
typedef VEC(double) acc_v;
#else
typedef float acc_t;
typedef VEC(float) acc_v;
#endif

#if IN == F16
typedef half in_t;
#elif IN == BF16
typedef ushort in_t;
#elif IN == F32
typedef float in_t;
#else
typedef double in_t;
#endif

#if OUT == F16
typedef half out_t;
#elif OUT == BF16
typedef ushort out_t;
#elif OUT == F32
typedef float out_t;
#else
typedef double out_t;
#endif

/* Loads of one element and of VW consecutive ones, widened to the accumulator's type. */
#if IN == F16
#define LOAD(p, i) vload_half(i, p)
#elif IN == BF16
#define LOAD(p, i) as_float((uint)(p)[i] << 16)
#else
#define LOAD(p, i) (p)[i]
#endif

#if VW == 1
#define LOADV(p, i) LOAD(p, i)
#define LOAD_ACCV(p, i) (p)[i]
#define STORE_ACCV(v, p, i) (p)[i] = (v)
#else
#if IN == F16
#define LOADV(p, i) PASTE(vload_half, VW)(0, (p) + (i))
#elif IN == BF16
#define LOADV(p, i) PASTE(as_float, VW)(PASTE(convert_uint, VW)(PASTE(vload, VW)(0, (p) + (i))) << 16)
#else
#define LOADV(p, i) PASTE(vload, VW)(0, (p) + (i))
#endif
#define LOAD_ACCV(p, i) PASTE(vload, VW)(0, (p) + (i))
#define STORE_ACCV(v, p, i) PASTE(vstore, VW)(v, 0, (p) + (i))
#endif

/* Stores round to nearest even; a NaN stays a NaN. */
#if OUT == BF16
inline ushort to_bf16(float x)
{
    uint bits = as_uint(x);
    uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (ushort)(isnan(x) ? (bits >> 16) | 0x40u : rounded);
}
#define STORE(x, p, i) (p)[i] = to_bf16(x)
#elif OUT == F16
#define STORE(x, p, i) vstore_half_rte(x, i, p)
#else
#define STORE(x, p, i) (p)[i] = (out_t)(x)
#endif

#if VW == 1
#define STOREV(x, p, i) STORE(x, p, i)
#elif OUT == BF16
inline VEC(ushort) to_bf16v(VEC(float) x)
{
    VEC(uint) bits = PASTE(as_uint, VW)(x);
    VEC(uint) rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    VEC(uint) quiet = (bits >> 16) | 0x40u;
    return PASTE(convert_ushort, VW)(select(rounded, quiet, isnan(x)));
}
#define STOREV(x, p, i) PASTE(vstore, VW)(to_bf16v(x), 0, (p) + (i))
#elif OUT == F16 && VW >= 8
/* By way of an aligned array: vstore_half8 and 16 of PoCL 3.1 fault on addresses that are only aligned to halves. */
inline void store_halves(VEC(float) x, __global out_t *p)
{
    ushort rounded[VW] __attribute__((aligned(32)));
    PASTE(PASTE(vstore_half, VW), _rte)(x, 0, (half *)rounded);
    PASTE(vstore, VW)(PASTE(vload, VW)(0, rounded), 0, (__global ushort *)p);
}
#define STOREV(x, p, i) store_halves(x, (p) + (i))
#elif OUT == F16
#define STOREV(x, p, i) PASTE(PASTE(vstore_half, VW), _rte)(x, 0, (p) + (i))
#elif OUT == F64 && IN != F64
#define STOREV(x, p, i) PASTE(vstore, VW)(PASTE(convert_double, VW)(x), 0, (p) + (i))
#elif OUT == F32 && IN == F64
#define STOREV(x, p, i) PASTE(vstore, VW)(PASTE(convert_float, VW)(x), 0, (p) + (i))
#else
#define STOREV(x, p, i) PASTE(vstore, VW)(x, 0, (p) + (i))
#endif

/* Every kernel takes the three matrices like this: the element where the matrix begins, the strides of
 * its rows and columns, and of the two batch axes that may remain, all in elements. */
#define MATRIX_ARGS(x) long x##_at, long x##_row_arg, long x##_col_arg, long x##_outer, long x##_inner

#define BUFFER_ARGS                                                                                   \
    __global const in_t *restrict lhs, __global const in_t *restrict rhs, __global out_t *restrict out
#define PROBLEM_ARGS                                                                                  \
    BUFFER_ARGS, MATRIX_ARGS(lhs), MATRIX_ARGS(rhs), MATRIX_ARGS(out), int m, int n, int k, int inner_extent

/* The same numbers as fields of a struct, and from there as variables of the names that arguments have. */
#define MATRIX_FIELDS(x) long x##_at, x##_row_arg, x##_col_arg, x##_outer, x##_inner;
#define MATRIX_FROM(args, x)                                                                          \
    const long x##_at = args.x##_at, x##_row_arg = args.x##_row_arg, x##_col_arg = args.x##_col_arg;  \
    const long x##_outer = args.x##_outer, x##_inner = args.x##_inner;
#define PROBLEM_FROM(args)                                                                            \
    MATRIX_FROM(args, lhs) MATRIX_FROM(args, rhs) MATRIX_FROM(args, out)                              \
    const int m = args.m, n = args.n, k = args.k, inner_extent = args.inner_extent;

/* A stride known to be 1 is a constant, so the compiler sees consecutive elements. */
#ifdef LHS_ROW_1
#define lhs_row 1L
#else
#define lhs_row lhs_row_arg
#endif
#ifdef LHS_COL_1
#define lhs_col 1L
#else
#define lhs_col lhs_col_arg
#endif
#ifdef RHS_ROW_1
#define rhs_row 1L
#else
#define rhs_row rhs_row_arg
#endif
#ifdef RHS_COL_1
#define rhs_col 1L
#else
#define rhs_col rhs_col_arg
#endif
#define out_row out_row_arg
#define out_col 1L

/* Moves the three pointers to product number `index` of the batch. */
#define SELECT_PRODUCT(index)                                                      \
    do {                                                                           \
        long outer_ = (index) / inner_extent, inner_ = (index) % inner_extent;     \
        lhs += lhs_at + outer_ * lhs_outer + inner_ * lhs_inner;                   \
        rhs += rhs_at + outer_ * rhs_outer + inner_ * rhs_inner;                   \
        out += out_at + outer_ * out_outer + inner_ * out_inner;                   \
    } while (0)
