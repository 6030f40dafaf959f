// Adds up the slices of k of f32 products: out[i][j] = the sum over s of parts[s][i][j], product by product.
//
// A work-item adds four neighbouring columns. Where results are few, LANES of them share the slices of the same
// columns, and add up what they have at the end.
//
// Defined by the build: LANES, a power of two.

#define GROUP 256
#define PLACES (GROUP / LANES)

// `wide` says that all rows start at multiples of 16 bytes, else elements are read one by one.
static inline float4 load_4(__global const float *from, uint left, uint wide)
{
    if (wide) return *(__global const float4 *)from;
    float4 v = (float4)(from[0], 0.0f, 0.0f, 0.0f);
    if (left > 1) v.y = from[1];
    if (left > 2) v.z = from[2];
    if (left > 3) v.w = from[3];
    return v;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void add_parts(__global const float *parts, __global float *out, long out_offset, long out_row, long out_outer,
               long out_inner, uint m, uint n, uint slices, uint inner_batches, uint wide_parts, uint wide_stores)
{
    uint place = get_local_id(0) % PLACES, lane = get_local_id(0) / PLACES;
    uint across = (n + 3) / 4, at = get_group_id(0) * PLACES + place, product = get_group_id(1);
    uint row = at / across, col = at % across * 4;
    bool mine = row < m;
    float4 sum = (float4)(0.0f);
    if (mine) {
        ulong slice = (ulong)m * n;
        __global const float *from = parts + product * slices * slice + (ulong)row * n + col;
        #pragma unroll 4
        for (uint s = lane; s < slices; s += LANES) sum += load_4(from + s * slice, n - col, wide_parts);
    }
#if LANES > 1
    __local float4 sums[GROUP];
    sums[get_local_id(0)] = sum;
    for (uint half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_) sums[get_local_id(0)] = sum = sum + sums[get_local_id(0) + half_ * PLACES];
    }
    if (lane > 0) return;
#endif
    if (!mine) return;
    out += out_offset + (product / inner_batches) * out_outer + (product % inner_batches) * out_inner + row * out_row + col;
    if (wide_stores && n - col >= 4) {
        *(__global float4 *)out = sum;
        return;
    }
    out[0] = sum.x;
    if (n - col > 1) out[1] = sum.y;
    if (n - col > 2) out[2] = sum.z;
    if (n - col > 3) out[3] = sum.w;
}
