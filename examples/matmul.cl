// C = A · B of square row-major matrices whose side is a multiple of every tile.
// A work-group computes a tile of C, each work-item tile_y by tile_x of its elements, block_size apart.
// The operands' tiles of depth `depth` pass through local memory.
#define ROWS (block_size_y * tile_y)
#define COLUMNS (block_size_x * tile_x)

__kernel void matmul(__global float *c, __global const float *a, __global const float *b, int n)
{
    __local float left[ROWS][depth];
    __local float right[depth][COLUMNS];
    int x = get_local_id(0), y = get_local_id(1);
    int lane = y * block_size_x + x, lanes = block_size_x * block_size_y;
    int row = get_group_id(1) * ROWS, column = get_group_id(0) * COLUMNS;
    float sum[tile_y][tile_x];
    for (int i = 0; i < tile_y; i++)
        for (int j = 0; j < tile_x; j++)
            sum[i][j] = 0;

    for (int k = 0; k < n; k += depth) {
        for (int e = lane; e < ROWS * depth; e += lanes)
            left[e / depth][e % depth] = a[(row + e / depth) * n + k + e % depth];
        for (int e = lane; e < depth * COLUMNS; e += lanes)
            right[e / COLUMNS][e % COLUMNS] = b[(k + e / COLUMNS) * n + column + e % COLUMNS];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int l = 0; l < depth; l++)
            for (int i = 0; i < tile_y; i++)
                for (int j = 0; j < tile_x; j++)
                    sum[i][j] += left[y + i * block_size_y][l] * right[l][x + j * block_size_x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < tile_y; i++)
        for (int j = 0; j < tile_x; j++)
            c[(row + y + i * block_size_y) * n + column + x + j * block_size_x] = sum[i][j];
}
