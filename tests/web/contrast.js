// Returns the texts whose contrast with their ground is less than WCAG's 4.5:1.
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = (colour) => {
    const [r, g, b] = [...rgb(colour)].map(each => each / 255).map(each => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (rgb(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const poor = [];
  for (const element of document.querySelectorAll('.row b, .row .state, .row .muted, .expiry, .node b, .node .muted, .chip, .findings p, .failures p, .severity, .found, footer p')) {
    if (!element.getClientRects().length) continue;
    const [one, two] = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    if ((one + 0.05) / (two + 0.05) < 4.5) poor.push([element.className, element.textContent.slice(0, 30), (one + 0.05) / (two + 0.05)]);
  }
  return poor;
})()
