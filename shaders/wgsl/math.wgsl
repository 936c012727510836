// Scalar functions on f32 with the special values that WGSL's own leave open. A shader may assume that there is no NaN
// or infinity, so both are told by their bits; and a constant infinity does not compile, so both are made at run time.
const T_NAN_BITS = 0x7fc00000u;
fn t_is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
fn t_is_inf(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}
fn t_inf() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}
fn t_nan() -> f32 {
    var bits = T_NAN_BITS;
    return bitcast<f32>(bits);
}
fn t_negative(x: f32) -> bool {
    return (bitcast<u32>(x) >> 31u) == 1u;
}
fn t_maximum(x: f32, y: f32) -> f32 {
    return select(select(max(x, y), y, t_is_nan(y)), x, t_is_nan(x));
}
fn t_minimum(x: f32, y: f32) -> f32 {
    return select(select(min(x, y), y, t_is_nan(y)), x, t_is_nan(x));
}
fn t_eq(x: f32, y: f32) -> bool {
    return x == y && !t_is_nan(x) && !t_is_nan(y);
}
fn t_lt(x: f32, y: f32) -> bool {
    return x < y && !t_is_nan(x) && !t_is_nan(y);
}
fn t_le(x: f32, y: f32) -> bool {
    return x <= y && !t_is_nan(x) && !t_is_nan(y);
}
fn t_sign(x: f32) -> f32 {
    return select(sign(x), x, t_is_nan(x));
}
fn t_relu(x: f32) -> f32 {
    return select(x, 0.0, t_negative(x) && !t_is_nan(x));
}
fn t_round(x: f32) -> f32 {
    // Half away from zero; from 2^23 on there are no fractions.
    let whole = trunc(x);
    return select(whole, whole + sign(x), abs(x - whole) >= 0.5 && abs(x) < 8388608.0);
}
// e^x = 2^n e^r with r within ln 2 / 2; the scale goes in two halves, so that results near both ends survive.
fn t_exp(x: f32) -> f32 {
    let kept = clamp(x, -104.0, 89.0);
    let n = round(kept * 1.4426950408889634);
    let r = (kept - n * 0.693359375) + n * 2.12194440e-4;
    var p = 0.0013942159712314606;
    p = p * r + 0.008363775908946991;
    p = p * r + 0.041666362434625626;
    p = p * r + 0.16666573286056519;
    p = p * r + 0.5;
    let n0 = i32(n) / 2;
    let n1 = i32(n) - n0;
    let low = bitcast<f32>(u32(n0 + 127) << 23u);
    let high = bitcast<f32>(u32(n1 + 127) << 23u);
    let value = ((p * r * r + r) + 1.0) * low * high;
    return select(select(value, t_inf(), x > 88.73), x, t_is_nan(x));
}
fn t_log(x: f32) -> f32 {
    if (t_is_nan(x) || (t_negative(x) && x != 0.0)) {
        return t_nan();
    }
    if (t_is_inf(x)) {
        return x;
    }
    if (x == 0.0) {
        return -t_inf();
    }
    return log(x);
}
fn t_sqrt(x: f32) -> f32 {
    return select(sqrt(x), x, t_is_nan(x) || (t_is_inf(x) && !t_negative(x)));
}
// x - y * trunc(x / y), exactly: multiples of y by powers of two are taken away, the largest that fits first. Each
// difference is exact, since the subtrahend is at least half of what it is taken from.
fn t_rem(x: f32, y: f32) -> f32 {
    let divisor = abs(y);
    var rest = abs(x);
    if (t_is_nan(x) || t_is_nan(y) || t_is_inf(x) || divisor == 0.0) {
        return t_nan();
    }
    if (t_is_inf(y)) {
        return x;
    }
    let low = i32(bitcast<u32>(divisor) >> 23u);
    while (rest >= divisor) {
        let power = i32(bitcast<u32>(rest) >> 23u) - low;
        var part = ldexp(divisor, max(power - 1, 0));
        part = select(part, part * 2.0, part <= rest - part);
        rest = rest - part;
    }
    return select(rest, -rest, t_negative(x));
}
fn t_rsqrt(x: f32) -> f32 {
    return 1.0 / t_sqrt(x);
}
fn t_sigmoid(x: f32) -> f32 {
    // Past 88 the exponential would overflow, and what WGSL makes of an infinity is open.
    let value = 1.0 / (1.0 + t_exp(min(-x, 88.0)));
    // Below -88 it is smaller than every normal number.
    return select(select(value, 0.0, x < -88.0), x, t_is_nan(x));
}
fn t_silu(x: f32) -> f32 {
    // -inf * 0 is NaN, as the formula has it.
    return select(select(x * t_sigmoid(x), -0.0, x < -104.0), t_nan(), t_is_nan(x) || (t_is_inf(x) && t_negative(x)));
}
fn t_tanh(x: f32) -> f32 {
    let a = abs(x);
    let s = x * x;
    var p = -0.006113175302743912;
    p = p * s + 0.02101006731390953;
    p = p * s - 0.053854066878557205;
    p = p * s + 0.13332794606685638;
    p = p * s - 0.333333283662796;
    let small = p * s * x + x;
    let large = 1.0 - 2.0 / (t_exp(min(2.0 * a, 40.0)) + 1.0);
    let value = select(select(large, -large, x < 0.0), small, a < 0.625);
    return select(value, x, t_is_nan(x));
}
// erf for |x| <= 1: an odd polynomial fitted to erf(x) / x.
fn t_erf_small(x: f32) -> f32 {
    let s = x * x;
    var p = 7.889118569437414e-5;
    p = p * s - 0.0008020841050893068;
    p = p * s + 0.005189535208046436;
    p = p * s - 0.026854444295167923;
    p = p * s + 0.11283600330352783;
    p = p * s - 0.3761262595653534;
    p = p * s + 1.1283791065216064;
    return p * x;
}
// erfc for 1 <= x <= 10: e^(-x^2) times a polynomial in 1 / (1 + x/2).
fn t_erfc_large(x: f32) -> f32 {
    let u = 1.0 / (1.0 + 0.5 * x);
    var p = 0.07273425161838531;
    p = p * u - 0.158155158162117;
    p = p * u - 0.012693524360656738;
    p = p * u + 0.13478340208530426;
    p = p * u + 0.14412522315979004;
    p = p * u + 0.2570425570011139;
    p = p * u + 0.28026995062828064;
    p = p * u + 0.28226974606513977;
    p = p * u - 7.000242021604208e-6;
    return t_exp(-x * x) * p;
}
fn t_erf(x: f32) -> f32 {
    let a = abs(x);
    let large = 1.0 - t_erfc_large(min(a, 10.0));
    let value = select(select(large, -large, x < 0.0), t_erf_small(x), a <= 1.0);
    return select(value, x, t_is_nan(x));
}
// Below `low` a GELU is 0; at -inf the formula gives NaN.
fn t_gelu_ends(value: f32, x: f32, low: f32) -> f32 {
    return select(select(value, -0.0, x < low), t_nan(), t_is_nan(x) || (t_is_inf(x) && t_negative(x)));
}
// By erfc where x is negative: 1 + erf would cancel.
fn t_gelu_erf(x: f32) -> f32 {
    let a = abs(x) * 0.7071067811865476;
    let upper = select(0.5 * t_erfc_large(min(a, 10.0)), 0.5 - 0.5 * t_erf_small(a), a <= 1.0);
    let value = x * select(1.0 - upper, upper, x < 0.0);
    return t_gelu_ends(value, x, -14.2);
}
// (1 + tanh u) / 2 = 1 / (1 + e^(-2u)).
fn t_gelu(x: f32) -> f32 {
    let kept = clamp(x, -20.0, 20.0);
    let u = 0.7978845608028654 * (kept + 0.044715 * kept * kept * kept);
    let value = x * t_sigmoid(2.0 * u);
    return t_gelu_ends(value, x, -20.0);
}
fn t_pow(x: f32, y: f32) -> f32 {
    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (t_is_nan(x) || t_is_nan(y)) {
        return t_nan();
    }
    let a = abs(x);
    let whole = t_is_inf(y) || trunc(y) == y;
    // From 2^24 on every f32 is even.
    let odd = whole && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
    var value = 0.0;
    if (t_is_inf(y)) {
        value = select(select(0.0, t_inf(), (a > 1.0) == (y > 0.0)), 1.0, a == 1.0);
    } else if (a == 0.0 || t_is_inf(x)) {
        value = select(0.0, t_inf(), (a == 0.0) == (y < 0.0));
    } else if (whole && abs(y) <= 16.0) {
        // By squaring: exact where the result is.
        value = 1.0;
        var base = a;
        for (var left = u32(abs(y)); left != 0u; left = left >> 1u) {
            value = select(value, value * base, (left & 1u) == 1u);
            base = base * base;
        }
        value = select(value, 1.0 / value, y < 0.0);
    } else {
        let exponent = y * log2(a);
        value = select(exp2(clamp(exponent, -160.0, 128.0)), t_inf(), exponent >= 128.0);
        value = select(value, t_nan(), x < 0.0 && !whole);
    }
    return select(value, -value, odd && t_negative(x));
}
const T_LOWEST = -3.4028234e38;
