// c = a + b. Work-items take `per_item` elements each, one work-group's width apart.
__kernel void vector_add(__global float *c, __global const float *a, __global const float *b, int n)
{
    int first = get_group_id(0) * block_size_x * per_item + get_local_id(0);
    for (int turn = 0; turn < per_item; turn++) {
        int i = first + turn * block_size_x;
        if (i < n)
            c[i] = a[i] + b[i];
    }
}
