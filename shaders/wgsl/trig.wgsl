// Sine and cosine for every finite x: WGSL's own are specified within one turn only. The argument is reduced to
// r = x - q * pi/2 with |r| <= pi/4; then polynomials, chosen by the quadrant.
// Returns (r, q mod 4 as a whole number).
fn t_reduce(x: f32) -> vec2<f32> {
    if (abs(x) < 8192.0) {
        // pi/2 in three parts with few enough bits that q * part is exact (Cody and Waite).
        let q = round(x * 0.6366197723675814);
        let r = ((x - q * 1.5703125) - q * 4.837512969970703125e-4) - q * 7.54978995489188216e-8;
        return vec2<f32>(r, f32(i32(q) & 3));
    }
    return t_reduce_large(x);
}
// Bits 32 * i and on of 2/pi, behind the point.
fn t_two_over_pi(i: u32) -> u32 {
    switch i {
        case 0u: { return 0xa2f9836eu; }
        case 1u: { return 0x4e441529u; }
        case 2u: { return 0xfc2757d1u; }
        case 3u: { return 0xf534ddc0u; }
        case 4u: { return 0xdb629599u; }
        case 5u: { return 0x3c439041u; }
        default: { return 0xfe5163abu; }
    }
}
// 32 bits of 2/pi from bit `at` behind the point on; zeros before it.
fn t_window(at: i32) -> u32 {
    if (at <= -32) {
        return 0u;
    }
    if (at < 0) {
        return t_two_over_pi(0u) >> u32(-at);
    }
    let word = u32(at) / 32u;
    let shift = u32(at) % 32u;
    let high = t_two_over_pi(word) << shift;
    return select(high, high | (t_two_over_pi(word + 1u) >> ((32u - shift) & 31u)), shift != 0u);
}
// x = m * 2^e with whole m (Payne and Hanek): of x * 2/pi only the bits below 4 matter, so the bits of 2/pi that would
// give multiples of 4 are left out, and 96 of those that follow are enough.
fn t_reduce_large(x: f32) -> vec2<f32> {
    let bits = bitcast<u32>(x);
    let e = i32((bits >> 23u) & 0xffu) - 150;
    let m = (bits & 0x7fffffu) | 0x800000u;
    // The window begins where a bit of 2/pi, times 2^e, weighs 2.
    let a = t_window(e - 2);
    let b = t_window(e + 30);
    let c = t_window(e + 62);
    // The product's words: high has weight 2^2 at its top bit's left, so its two top bits are the quadrant.
    let low = t_mulhi(c, m);
    let middle = b * m + low;
    let high = a * m + t_mulhi(b, m) + select(0u, 1u, middle < low);
    var q = high >> 30u;
    var fraction = vec2<u32>(middle << 2u, (high << 2u) | (middle >> 30u));
    // To the nearest quadrant, with a signed fraction.
    let over = (fraction.y >> 31u) == 1u;
    if (over) {
        q = q + 1u;
        fraction = t_neg64(fraction);
    }
    var r = t_u64_to_f32(fraction) * 5.421010862427522e-20 * 1.5707963267948966;
    r = select(r, -r, over != t_negative(x));
    return vec2<f32>(r, f32(select(q, 0u - q, t_negative(x)) & 3u));
}
fn t_sin_quadrant(r: f32, q: u32) -> f32 {
    let s = r * r;
    var sine = -0.00019588004215620458;
    sine = sine * s + 0.008332748897373676;
    sine = sine * s - 0.166666641831398;
    sine = sine * s * r + r;
    var cosine = 2.4552331524319015e-5;
    cosine = cosine * s - 0.001388833625242114;
    cosine = cosine * s + 0.0416666641831398;
    cosine = cosine * s * s + (1.0 - 0.5 * s);
    let value = select(sine, cosine, (q & 1u) == 1u);
    return select(value, -value, (q & 2u) == 2u);
}
fn t_sin(x: f32) -> f32 {
    if (t_is_nan(x) || t_is_inf(x)) {
        return t_nan();
    }
    let reduced = t_reduce(x);
    return t_sin_quadrant(reduced.x, u32(reduced.y));
}
fn t_cos(x: f32) -> f32 {
    if (t_is_nan(x) || t_is_inf(x)) {
        return t_nan();
    }
    let reduced = t_reduce(x);
    return t_sin_quadrant(reduced.x, u32(reduced.y) + 1u);
}
