"""How the pages in docs/ become a site; needed by ``make docs`` alone."""
