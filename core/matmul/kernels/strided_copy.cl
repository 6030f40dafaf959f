/* Copies a strided array of RANK axes to another layout, one work-item an element.
 *
 *   target[sum of i_a * target_stride_a] = source[sum of i_a * source_stride_a],  innermost axis last
 *
 * ELEM is an unsigned integer type of the element's size: bits are moved, never converted.
 * axes holds RANK triples (extent, source stride, target stride), strides in elements.
 */
__kernel void strided_copy(__global const ELEM *restrict source, long source_offset,
                           __global ELEM *restrict target, long target_offset,
                           __constant long *axes) {
    long index = get_global_id(0);
    for (int axis = RANK - 1; axis >= 0; axis--) {
        const long extent = axes[3 * axis];
        const long at = index % extent;
        index /= extent;
        source_offset += at * axes[3 * axis + 1];
        target_offset += at * axes[3 * axis + 2];
    }
    target[target_offset] = source[source_offset];
}
