// Arrays of the document: base64 text becomes a typed array once.

const TYPES = { float32: Float32Array, float64: Float64Array, int32: Int32Array, uint8: Uint8Array };

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The rows of an array: `width` numbers each, in one typed array. */
class Rows {
  constructor(values, shape) {
    this.values = values;
    this.shape = shape;
    this.length = shape[0];
    this.width = shape.slice(1).reduce((product, size) => product * size, 1);
  }

  row(index) {
    return this.values.subarray(index * this.width, (index + 1) * this.width);
  }

  /** Smallest and largest finite number of one column, or of all. */
  range(column = null) {
    let low = Infinity;
    let high = -Infinity;
    const stride = column === null ? 1 : this.width;
    for (let i = column ?? 0; i < this.values.length; i += stride) {
      const value = this.values[i];
      if (value < low && value !== -Infinity) low = value;
      if (value > high && value !== Infinity) high = value;
    }
    return low > high ? [0, 0] : [low, high];
  }
}

/** Decode an array of the document; null stays null. */
async function decode(array) {
  if (array === null || array === undefined) return null;
  let bytes = bytesOf(array.data);
  array.data = "";
  if (array.encoding === "deflate") bytes = await inflate(bytes);
  return new Rows(new TYPES[array.dtype](bytes.buffer), array.shape);
}

/** Decode all arrays of an object. */
async function decodeAll(arrays) {
  const entries = Object.entries(arrays).map(async ([name, array]) => [name, await decode(array)]);
  return new Map(await Promise.all(entries));
}
