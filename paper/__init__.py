"""The paper's experiments: ``make paper FIGURE=fig2``. Results are stored while they run."""
