// Conversions between the storage types and what is computed in. Every rounding is to nearest, ties to even.
fn t_from_bf16(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}
fn t_to_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, t_is_nan(x));
}
fn t_from_f16(bits: u32) -> f32 {
    return unpack2x16float(bits).x;
}
// Packing a value that f16 cannot hold is undefined in WGSL, and some devices round packing toward zero: so on bits.
fn t_to_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    let sign = (bits >> 16u) & 0x8000u;
    var code = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
    code = min(code - 0x1c000u, 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Subnormal: a count of steps of 2^-24; adding 2^23 steps rounds in the adder.
        code = bitcast<u32>(bitcast<f32>(magnitude) * 16777216.0 + 8388608.0) & 0x7fffu;
    }
    if (magnitude >= 0x7f800000u) {
        code = select(0x7c00u, 0x7e00u, magnitude > 0x7f800000u);
    }
    return code | sign;
}
fn t_to_2f16(x: f32, y: f32) -> u32 {
    return t_to_f16(x) | (t_to_f16(y) << 16u);
}
fn t_round_f16(x: f32) -> f32 {
    return t_from_f16(t_to_f16(x));
}
fn t_round_bf16(x: f32) -> f32 {
    return t_from_bf16(t_to_bf16(x));
}
// 4 exponent bits, bias 7, no infinity, NaN is 0x7f.
fn t_from_e4m3(bits: u32) -> f32 {
    let sign = (bits & 0x80u) << 24u;
    let code = bits & 0x7fu;
    // Shifted into place of f32's exponent, 2^120 too small; subnormals are counts of 2^-9.
    var magnitude = bitcast<f32>((code << 20u) + (120u << 23u));
    magnitude = select(magnitude, f32(code) * 0.001953125, code < 8u);
    let nan = bitcast<f32>(T_NAN_BITS | (bits & 0u));
    return select(bitcast<f32>(bitcast<u32>(magnitude) | sign), nan, code == 0x7fu);
}
fn t_to_e4m3(x: f32) -> u32 {
    let code = min(t_code_f8(x, 3u, 7u), 0x7fu);
    let special = (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u;
    return select(code, 0x7fu, special) | ((bitcast<u32>(x) >> 24u) & 0x80u);
}
fn t_round_e4m3(x: f32) -> f32 {
    return t_from_e4m3(t_to_e4m3(x));
}
// 5 exponent bits, bias 15: the upper byte of an f16.
fn t_from_e5m2(bits: u32) -> f32 {
    return unpack2x16float(bits << 8u).x;
}
fn t_to_e5m2(x: f32) -> u32 {
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    var code = min(t_code_f8(x, 2u, 15u), 0x7cu);
    code = select(code, 0x7cu, magnitude == 0x7f800000u);
    code = select(code, 0x7fu, magnitude > 0x7f800000u);
    return code | ((bitcast<u32>(x) >> 24u) & 0x80u);
}
fn t_round_e5m2(x: f32) -> f32 {
    return t_from_e5m2(t_to_e5m2(x));
}
// The code without sign, perhaps past the largest.
fn t_code_f8(x: f32, mantissa: u32, bias: u32) -> u32 {
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    let shift = 23u - mantissa;
    let rounded = (magnitude + (1u << (shift - 1u)) - 1u + ((magnitude >> shift) & 1u)) >> shift;
    let normal = rounded - ((127u - bias) << mantissa);
    let steps = bitcast<f32>(magnitude) * bitcast<f32>((126u + bias + mantissa) << 23u);
    let subnormal = bitcast<u32>(steps + 8388608.0) & 0xffu;
    return select(normal, subnormal, magnitude < ((128u - bias) << 23u));
}
// Truncates and saturates, NaN to 0; the limits are the nearest f32 inside the type.
fn t_f32_to_u32(x: f32) -> u32 {
    let kept = select(clamp(x, 0.0, 4294967040.0), 0.0, t_is_nan(x));
    return select(u32(kept), 0xffffffffu, x >= 4294967296.0 && !t_is_nan(x));
}
fn t_f32_to_i32(x: f32) -> i32 {
    let kept = select(clamp(x, -2147483648.0, 2147483520.0), 0.0, t_is_nan(x));
    return select(i32(kept), 0x7fffffff, x >= 2147483648.0 && !t_is_nan(x));
}
// The low nibbles of four bytes, as floats; the upper nibbles are those of w >> 4.
fn t_nibbles(w: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(w) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u));
}
// Four pairs of bits, lowest first.
fn t_pairs(w: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(w) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u));
}
fn t_signed_bytes(w: u32) -> vec4<f32> {
    return vec4<f32>((vec4<i32>(bitcast<i32>(w)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
