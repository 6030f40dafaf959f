// Around the product of split f32 operands: what must be known and prepared before it, and what must be
// made good after it.
//
// Splitting x = high + low into TF32 parts is as good as f32 only in the middle of f32's range. Near its top
// `high` rounds to infinity and sums overflow in other places than plain f32's do; near its bottom `low`
// or a product of parts is lost; NaN and infinity have no parts. So the range of every row of lhs and of
// every column of rhs is taken first, and a tile of results one of whose pairs is not safe is made
// again with plain multiply-adds afterwards.
//
// A range is two words: the bits of the largest magnitude (NaN above infinity above all numbers), and the
// bits of the smallest magnitude that is not zero.

#define GROUP 256
#define NO_MINIMUM 0xffffffffu

static inline void widen(uint *largest, uint *smallest, float x)
{
    uint bits = as_uint(x) & 0x7fffffffu;
    *largest = max(*largest, bits);
    if (bits) *smallest = min(*smallest, bits);
}

static inline float low_part(float x)
{
    // Nearest even TF32, as the copy engine rounds: 13 bits go.
    uint bits = as_uint(x);
    bits = (bits + 0xfffu + (bits >> 13 & 1)) & 0xffffe000u;
    return x - as_float(bits);
}

// Work-groups 0 .. lhs_rows-1 take a row of lhs each and write its low parts; the others take 64 columns and
// RHS_CHUNK rows of rhs each. Rows of lhs and of rhs start at multiples of 16 bytes.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void prepare(__global const float *lhs, long lhs_offset, long lhs_row, long lhs_outer, long lhs_inner, uint lhs_inner_batches,
             __global const float *rhs, long rhs_offset, long rhs_row, long rhs_outer, long rhs_inner, uint rhs_inner_batches,
             __global float *low, __global uint2 *lhs_range, __global uint2 *rhs_range,
             uint m, uint n, uint k, uint low_pitch, uint lhs_rows, uint column_groups, uint chunks)
{
    __local uint highs[GROUP / 16][64], lows[GROUP / 16][64];
    uint thread = get_local_id(0), group = get_group_id(0);
    if (group < lhs_rows) {
        uint batch = group / m, row = group % m;
        __global const float *from = lhs + lhs_offset + row * lhs_row
            + (batch / lhs_inner_batches) * lhs_outer + (batch % lhs_inner_batches) * lhs_inner;
        __global float *to = low + (ulong)group * low_pitch;
        uint largest = 0, smallest = NO_MINIMUM;
        for (uint i = 4 * thread; i + 3 < k; i += 4 * GROUP) {
            float4 v = *(__global const float4 *)(from + i);
            widen(&largest, &smallest, v.x);
            widen(&largest, &smallest, v.y);
            widen(&largest, &smallest, v.z);
            widen(&largest, &smallest, v.w);
            *(__global float4 *)(to + i) = (float4)(low_part(v.x), low_part(v.y), low_part(v.z), low_part(v.w));
        }
        uint tail = k / 4 * 4 + thread;
        if (tail < k) {
            widen(&largest, &smallest, from[tail]);
            to[tail] = low_part(from[tail]);
        }
        __local uint *highest = &highs[0][0], *lowest = &lows[0][0];
        highest[thread] = largest;
        lowest[thread] = smallest;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
            if (thread < half_) {
                highest[thread] = max(highest[thread], highest[thread + half_]);
                lowest[thread] = min(lowest[thread], lowest[thread + half_]);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (thread == 0) lhs_range[group] = (uint2)(highest[0], lowest[0]);
        return;
    }
    group -= lhs_rows;
    uint column_group = group % column_groups, chunk = group / column_groups % chunks, batch = group / column_groups / chunks;
    uint col = 64 * column_group + 4 * (thread % 16);
    __global const float *from = rhs + rhs_offset
        + (batch / rhs_inner_batches) * rhs_outer + (batch % rhs_inner_batches) * rhs_inner + col;
    uint largest[4] = {0, 0, 0, 0}, smallest[4] = {NO_MINIMUM, NO_MINIMUM, NO_MINIMUM, NO_MINIMUM};
    uint end = min(k, (chunk + 1) * RHS_CHUNK);
    if (col + 3 < n) {
        #pragma unroll 8
        for (uint row = chunk * RHS_CHUNK + thread / 16; row < end; row += GROUP / 16) {
            float4 v = *(__global const float4 *)(from + row * rhs_row);
            widen(&largest[0], &smallest[0], v.x);
            widen(&largest[1], &smallest[1], v.y);
            widen(&largest[2], &smallest[2], v.z);
            widen(&largest[3], &smallest[3], v.w);
        }
    } else {
        for (uint row = chunk * RHS_CHUNK + thread / 16; row < end; row += GROUP / 16)
            #pragma unroll
            for (uint e = 0; e < 4; e++)
                if (col + e < n) widen(&largest[e], &smallest[e], from[row * rhs_row + e]);
    }
    #pragma unroll
    for (uint e = 0; e < 4; e++) {
        highs[thread / 16][4 * (thread % 16) + e] = largest[e];
        lows[thread / 16][4 * (thread % 16) + e] = smallest[e];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread < 64 && 64 * column_group + thread < n) {
        uint high = 0, low_ = NO_MINIMUM;
        for (uint i = 0; i < GROUP / 16; i++) {
            high = max(high, highs[i][thread]);
            low_ = min(low_, lows[i][thread]);
        }
        rhs_range[((ulong)batch * chunks + chunk) * n + 64 * column_group + thread] = (uint2)(high, low_);
    }
}

static inline int exponent(uint bits) { return (int)(bits >> 23) - 127; }

// May results of these ranges come from split operands? All conditions are on exponents, on the safe side.
static inline bool safe(uint2 a, uint2 b, uint k)
{
    int top = exponent(a.x) + exponent(b.x) + 2 + (32 - clz(k));  // sums stay below 2^top
    int bottom_a = exponent(min(a.y, 0x7f000000u)), bottom_b = exponent(min(b.y, 0x7f000000u));
    return exponent(a.x) < 126 && exponent(b.x) < 126 && top < 126
        && bottom_a > -100 && bottom_b > -100 && bottom_a + bottom_b > -96;
}

// One 64 x 64 tile of results per work-group, 4 x 4 per work-item; leaves at once when its ranges are safe.
#define SIDE 64
#define DEPTH 16

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void repair(__global const float *lhs, long lhs_offset, long lhs_row, long lhs_outer, long lhs_inner, uint lhs_matrices_outer, uint lhs_matrices_inner,
            __global const float *rhs, long rhs_offset, long rhs_row, long rhs_outer, long rhs_inner, uint rhs_matrices_outer, uint rhs_matrices_inner,
            __global float *out, long out_offset, long out_row, long out_outer, long out_inner,
            __global const uint2 *lhs_range, __global const uint2 *rhs_range,
            uint m, uint n, uint k, uint chunks, uint inner_batches)
{
    __local uint ranges[4];
    __local float left[DEPTH][SIDE + 4] __attribute__((aligned(16)));
    __local float right[DEPTH][SIDE] __attribute__((aligned(16)));
    uint thread = get_local_id(0), n0 = get_group_id(0) * SIDE, m0 = get_group_id(1) * SIDE;
    uint outer = get_group_id(2) / inner_batches, inner = get_group_id(2) % inner_batches;
    if (thread < 4) ranges[thread] = thread % 2 ? NO_MINIMUM : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint lhs_matrix = outer % lhs_matrices_outer * lhs_matrices_inner + inner % lhs_matrices_inner;
    uint rhs_matrix = outer % rhs_matrices_outer * rhs_matrices_inner + inner % rhs_matrices_inner;
    if (thread < SIDE && m0 + thread < m) {
        uint2 range = lhs_range[(ulong)lhs_matrix * m + m0 + thread];
        atomic_max(&ranges[0], range.x);
        atomic_min(&ranges[1], range.y);
    }
    uint col = n0 + thread % SIDE;
    if (col < n)
        for (uint chunk = thread / SIDE; chunk < chunks; chunk += GROUP / SIDE) {
            uint2 range = rhs_range[((ulong)rhs_matrix * chunks + chunk) * n + col];
            atomic_max(&ranges[2], range.x);
            atomic_min(&ranges[3], range.y);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (safe((uint2)(ranges[0], ranges[1]), (uint2)(ranges[2], ranges[3]), k)) return;

    lhs += lhs_offset + outer * lhs_outer + inner * lhs_inner;
    rhs += rhs_offset + outer * rhs_outer + inner * rhs_inner;
    uint tx = thread % 16, ty = thread / 16;
    float acc[4][4];
    #pragma unroll
    for (uint i = 0; i < 4; i++)
        #pragma unroll
        for (uint j = 0; j < 4; j++) acc[i][j] = 0.0f;
    for (uint k0 = 0; k0 < k; k0 += DEPTH) {
        #pragma unroll
        for (uint i = thread; i < SIDE * DEPTH; i += GROUP) {
            uint r = i / DEPTH, a = i % DEPTH, c = i % SIDE, b = i / SIDE;
            left[a][r] = m0 + r < m && k0 + a < k ? lhs[(m0 + r) * lhs_row + k0 + a] : 0.0f;
            right[b][c] = n0 + c < n && k0 + b < k ? rhs[(k0 + b) * rhs_row + n0 + c] : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Past the end of k nothing is added: zero times infinity would be NaN.
        for (uint kk = 0; kk < min((uint)DEPTH, k - k0); kk++) {
            float4 a = *(__local const float4 *)&left[kk][4 * ty], b = *(__local const float4 *)&right[kk][4 * tx];
            float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
            #pragma unroll
            for (uint i = 0; i < 4; i++)
                #pragma unroll
                for (uint j = 0; j < 4; j++) acc[i][j] = fma(as[i], bs[j], acc[i][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out += out_offset + outer * out_outer + inner * out_inner;
    #pragma unroll
    for (uint i = 0; i < 4; i++)
        #pragma unroll
        for (uint j = 0; j < 4; j++)
            if (m0 + 4 * ty + i < m && n0 + 4 * tx + j < n) out[(m0 + 4 * ty + i) * out_row + n0 + 4 * tx + j] = acc[i][j];
}
