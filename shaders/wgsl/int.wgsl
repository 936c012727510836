// 32-bit integer arithmetic as the graph defines it: wrapping; division by zero gives zero.
fn t_div_u32(x: u32, y: u32) -> u32 {
    return select(x / max(y, 1u), 0u, y == 0u);
}
fn t_div_i32(x: i32, y: i32) -> i32 {
    // -2^31 / -1 wraps to itself: dividing by 1 instead gives that.
    let safe = select(y, 1, y == 0 || (y == -1 && x == -2147483647 - 1));
    return select(x / safe, 0, y == 0);
}
fn t_rem_u32(x: u32, y: u32) -> u32 {
    return select(x % max(y, 1u), x, y == 0u);
}
fn t_rem_i32(x: i32, y: i32) -> i32 {
    return x - t_div_i32(x, y) * y;
}
// Shifts by as many bits as there are, or more, leave nothing (or the sign). In narrower types the bits above are cut or
// repeat the sign, so that 32 serves for all.
fn t_shl_u32(x: u32, y: u32) -> u32 {
    return select(x << (y & 31u), 0u, y > 31u);
}
fn t_shr_u32(x: u32, y: u32) -> u32 {
    return select(x >> (y & 31u), 0u, y > 31u);
}
fn t_shr_i32(x: i32, y: i32) -> i32 {
    return x >> min(bitcast<u32>(y), 31u);
}
fn t_pow_u32(x: u32, y: u32) -> u32 {
    var base = x;
    var left = y;
    var result = 1u;
    while (left != 0u) {
        result = select(result, result * base, (left & 1u) == 1u);
        base = base * base;
        left = left >> 1u;
    }
    return result;
}
fn t_pow_i32(x: i32, y: i32) -> i32 {
    if (y < 0) {
        // 1 / x^|y|, truncated.
        return select(select(0, select(-1, 1, (y & 1) == 0), x == -1), 1, x == 1);
    }
    return bitcast<i32>(t_pow_u32(bitcast<u32>(x), bitcast<u32>(y)));
}
// The upper 32 bits of a product, by halves of 16 bits.
fn t_mulhi(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let middle = ah * bl + (low >> 16u);
    let other = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (other >> 16u);
}
// The product of four signed bytes with four signed bytes, summed: dot4I8Packed, where a device lacks it.
fn t_dot4(a: u32, b: u32) -> i32 {
    let x = (vec4<i32>(bitcast<i32>(a)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
    let y = (vec4<i32>(bitcast<i32>(b)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
    return dot(x, y);
}
