// 2-D convolution of an image that is padded on all sides, so that every output has its whole neighbourhood.
// Work-items compute tile_y by tile_x outputs each; with `staged` the neighbourhoods of a work-group pass
// through local memory.
#define STRIDE (problem_x + filter_x - 1)
#define ROWS (block_size_y * tile_y)
#define COLUMNS (block_size_x * tile_x)

#if defined(REFERENCE)
__kernel void convolution_plain(__global float *out, __global const float *image, __constant float *filter,
                                int problem_x, int problem_y)
{
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= problem_x || y >= problem_y)
        return;
    float sum = 0;
    for (int i = 0; i < filter_y; i++)
        for (int j = 0; j < filter_x; j++)
            sum += image[(y + i) * STRIDE + x + j] * filter[i * filter_x + j];
    out[y * problem_x + x] = sum;
}
#else
__kernel void convolution(__global float *out, __global const float *image, __constant float *filter,
                          int problem_x, int problem_y)
{
    int x = get_local_id(0), y = get_local_id(1);
    int column = get_group_id(0) * COLUMNS, row = get_group_id(1) * ROWS;
#if staged
    __local float near[ROWS + filter_y - 1][COLUMNS + filter_x - 1];
    for (int i = y; i < ROWS + filter_y - 1; i += block_size_y)
        for (int j = x; j < COLUMNS + filter_x - 1; j += block_size_x)
            if (row + i < problem_y + filter_y - 1 && column + j < STRIDE)
                near[i][j] = image[(row + i) * STRIDE + column + j];
    barrier(CLK_LOCAL_MEM_FENCE);
#define PIXEL(i, j) near[i][j]
#else
#define PIXEL(i, j) image[(row + (i)) * STRIDE + column + (j)]
#endif
    for (int ty = 0; ty < tile_y; ty++)
        for (int tx = 0; tx < tile_x; tx++) {
            int r = y + ty * block_size_y, c = x + tx * block_size_x;
            if (row + r >= problem_y || column + c >= problem_x)
                continue;
            float sum = 0;
            for (int i = 0; i < filter_y; i++)
                for (int j = 0; j < filter_x; j++)
                    sum += PIXEL(r + i, c + j) * filter[i * filter_x + j];
            out[(row + r) * problem_x + column + c] = sum;
        }
}
#endif
