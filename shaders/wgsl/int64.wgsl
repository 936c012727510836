// 64-bit integers as vec2<u32>(low, high), two's complement, wrapping.
fn t_add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn t_neg64(a: vec2<u32>) -> vec2<u32> {
    return t_add64(~a, vec2<u32>(1u, 0u));
}
fn t_sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn t_mul64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x * b.x, t_mulhi(a.x, b.x) + a.x * b.y + a.y * b.x);
}
fn t_shl64(a: vec2<u32>, by: vec2<u32>) -> vec2<u32> {
    let n = by.x & 31u;
    // A shift by 32 is not defined: in two steps.
    let carry = (a.x >> 1u) >> (31u - n);
    let near = vec2<u32>(a.x << n, (a.y << n) | carry);
    let far = vec2<u32>(0u, a.x << n);
    return select(select(near, far, by.x > 31u), vec2<u32>(0u), by.y != 0u || by.x > 63u);
}
// `sign` fills from above: 0, or all ones.
fn t_shr64(a: vec2<u32>, by: vec2<u32>, sign: u32) -> vec2<u32> {
    let n = by.x & 31u;
    let fill = (sign << 1u) << (31u - n);
    let near = vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), (a.y >> n) | fill);
    let far = vec2<u32>(near.y, sign);
    return select(select(near, far, by.x > 31u), vec2<u32>(sign), by.y != 0u || by.x > 63u);
}
fn t_eq64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x == b.x && a.y == b.y;
}
fn t_lt_u64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}
fn t_lt_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}
fn t_is_negative64(a: vec2<u32>) -> bool {
    return (a.y >> 31u) == 1u;
}
fn t_abs64(a: vec2<u32>) -> vec2<u32> {
    return select(a, t_neg64(a), t_is_negative64(a));
}
fn t_max_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, t_lt_u64(a, b));
}
fn t_min_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, t_lt_u64(b, a));
}
fn t_max_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, t_lt_i64(a, b));
}
fn t_min_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, t_lt_i64(b, a));
}
fn t_sign_u64(a: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u);
}
fn t_sign_i64(a: vec2<u32>) -> vec2<u32> {
    return select(t_sign_u64(a), vec2<u32>(0xffffffffu), t_is_negative64(a));
}
// Long division, bit by bit; by zero gives zero.
fn t_div_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if ((b.x | b.y) == 0u) {
        return vec2<u32>(0u);
    }
    if ((a.y | b.y) == 0u) {
        return vec2<u32>(a.x / b.x, 0u);
    }
    var rest = vec2<u32>(0u);
    var quotient = a;
    for (var i = 0u; i < 64u; i++) {
        let carry = rest.y >> 31u;
        rest = vec2<u32>((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
        quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
        if (carry == 1u || !t_lt_u64(rest, b)) {
            rest = t_sub64(rest, b);
            quotient.x |= 1u;
        }
    }
    return quotient;
}
fn t_div_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = t_div_u64(t_abs64(a), t_abs64(b));
    return select(quotient, t_neg64(quotient), t_is_negative64(a) != t_is_negative64(b));
}
fn t_pow_u64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
    var base = x;
    var left = y;
    var result = vec2<u32>(1u, 0u);
    while ((left.x | left.y) != 0u) {
        if ((left.x & 1u) == 1u) {
            result = t_mul64(result, base);
        }
        base = t_mul64(base, base);
        left = vec2<u32>((left.x >> 1u) | (left.y << 31u), left.y >> 1u);
    }
    return result;
}
fn t_pow_i64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
    if (t_is_negative64(y)) {
        // 1 / x^|y|, truncated.
        let one = vec2<u32>(1u, 0u);
        let minus_one = vec2<u32>(0xffffffffu);
        let alternating = select(minus_one, one, (y.x & 1u) == 0u);
        return select(select(vec2<u32>(0u), alternating, t_eq64(x, minus_one)), one, t_eq64(x, one));
    }
    return t_pow_u64(x, y);
}
// To nearest: the leading 32 bits, with what is lost folded into the last one, round like the whole number.
fn t_u64_to_f32(a: vec2<u32>) -> f32 {
    if (a.y == 0u) {
        return f32(a.x);
    }
    let shift = countLeadingZeros(a.y);
    var top = a.y << shift;
    var lost = a.x;
    if (shift > 0u) {
        top |= a.x >> (32u - shift);
        lost = a.x << shift;
    }
    top |= select(0u, 1u, lost != 0u);
    return ldexp(f32(top), i32(32u - shift));
}
fn t_i64_to_f32(a: vec2<u32>) -> f32 {
    let magnitude = t_u64_to_f32(t_abs64(a));
    return select(magnitude, -magnitude, t_is_negative64(a));
}
fn t_f32_to_u64(x: f32) -> vec2<u32> {
    if (t_is_nan(x) || x < 1.0) {
        return vec2<u32>(0u);
    }
    if (x >= 18446744073709551616.0) {
        return vec2<u32>(0xffffffffu);
    }
    let bits = bitcast<u32>(x);
    let exponent = (bits >> 23u) - 127u;
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    if (exponent <= 23u) {
        return vec2<u32>(mantissa >> (23u - exponent), 0u);
    }
    let shift = exponent - 23u;
    if (shift >= 32u) {
        return vec2<u32>(0u, mantissa << (shift - 32u));
    }
    return vec2<u32>(mantissa << shift, mantissa >> (32u - shift));
}
fn t_f32_to_i64(x: f32) -> vec2<u32> {
    if (t_is_nan(x)) {
        return vec2<u32>(0u);
    }
    if (x >= 9223372036854775808.0) {
        return vec2<u32>(0xffffffffu, 0x7fffffffu);
    }
    if (x <= -9223372036854775808.0) {
        return vec2<u32>(0u, 0x80000000u);
    }
    let magnitude = t_f32_to_u64(abs(x));
    return select(magnitude, t_neg64(magnitude), x < 0.0);
}
fn t_i32_to_i64(x: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}
