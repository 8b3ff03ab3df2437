// How far apart colours are to those who don't see all of them.
//
// Seeing without one kind of cones is simulated as Brettel, Viénot and Mollon did (1997), in Viénot's linear form
// for red and green and with Machado, Oliveira and Fernandes's matrix (2009) for blue; all in linear RGB. How far apart
// two colours are is their distance in CIELAB (ΔE*ab, D65), of which 2.3 is just seen (Mahy, Van Eycken and
// Oosterlinck 1994) by one who looks for it on large fields. Marks of a few pixels ask for about five times that
// (Stone, Szafir and Setlur 2014).
export const APART = 5 * 2.3;

/** What is seen of linear red, green and blue. */
export const SIGHTS = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
  deuteranopia: [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** Linear red, green and blue of #rrggbb or rgb(r, g, b). */
function linear(colour) {
  const channels = colour.startsWith("#") ? colour.match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)) : colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  return channels.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
}

const through = (matrix, rgb) => matrix.map((row) => Math.min(1, Math.max(0, row[0] * rgb[0] + row[1] * rgb[1] + row[2] * rgb[2])));

function lab([r, g, b]) {
  const f = (t) => (t > (6 / 29) ** 3 ? Math.cbrt(t) : t / (3 * (6 / 29) ** 2) + 4 / 29);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** The distance of two colours as they are seen. */
export function distance(one, other, sight) {
  const [a, b] = [one, other].map((colour) => lab(through(SIGHTS[sight], linear(colour))));
  return Math.hypot(...a.map((v, i) => v - b[i]));
}

/** WCAG's contrast of two colours. */
export function contrast(one, other) {
  const [a, b] = [one, other].map((colour) => {
    const [r, g, b] = linear(colour);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  });
  return Math.max(a, b) / Math.min(a, b);
}

/** The pairs of some colours that are too close for someone, in words. */
export function tooClose(colours) {
  const close = [];
  for (const sight of Object.keys(SIGHTS)) {
    colours.forEach((one, i) =>
      colours.slice(0, i).forEach((other) => {
        const apart = distance(one, other, sight);
        if (apart < APART) close.push(`${one} and ${other} with ${sight}: ${apart.toFixed(1)}`);
      }),
    );
  }
  return close;
}
