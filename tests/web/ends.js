// Returns how many lines there are, and those that do not go from a route to their backend.
(() => {
  const far = [];
  for (const picture of document.querySelectorAll('.picture')) {
    for (const path of picture.querySelectorAll('.route-links path:not(.hit)')) {
      const row = picture.querySelector(`.row[data-hops="${path.dataset.hops}"]`).getBoundingClientRect();
      const length = path.getTotalLength(), matrix = path.getScreenCTM();
      const end = path.getPointAtLength(length).matrixTransform(matrix), start = path.getPointAtLength(0).matrixTransform(matrix);
      const routes = [...picture.querySelectorAll('.route')].map(each => each.getBoundingClientRect());
      if (Math.abs(end.x - row.left) > 2 || Math.abs(end.y - (row.top + row.bottom) / 2) > 2) far.push(['end', path.dataset.hops]);
      if (!routes.some(each => Math.abs(start.x - each.right) < 2 && Math.abs(start.y - (each.top + each.bottom) / 2) < 2))
        far.push(['start', path.dataset.hops]);
    }
  }
  return [document.querySelectorAll('.route-links path:not(.hit)').length, far];
})()
